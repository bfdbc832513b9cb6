"""An even spread of replicas over brokers with few moves: the automatic plan of `penstock partition reassign`."""

from __future__ import annotations

from penstock.operate.errors import usage_error

Plan = dict[tuple[str, int], list[int]]


def even_plan(current: Plan, brokers: list[int]) -> Plan:
    """Every broker holds and leads nearly as many as any other; what is well placed stays where it is.

    Deterministic. Replicas of one partition never share a broker, and none gets lost: too few brokers are an error.
    """
    if not current or not brokers:
        return {}
    (topic, index), most = max(current.items(), key=lambda item: len(item[1]))
    if len(most) > len(brokers):
        raise usage_error(
            f"{topic}-{index} has {len(most)} replicas and would have room for {len(brokers)}",
            "name as many brokers as there are replicas; fewer replicas are asked for with --plan FILE",
        )
    load = dict.fromkeys(brokers, 0)
    plan: Plan = {}
    total = sum(len(replicas) for replicas in current.values())
    ceiling = -(-total // len(brokers))
    for key in sorted(current):  # first pass: keep what may stay
        kept: list[int] = []
        for node in current[key]:
            if node in load and load[node] < ceiling and node not in kept:
                kept.append(node)
                load[node] += 1
        plan[key] = kept
    for key in sorted(current):  # second pass: fill the gaps with whoever holds least
        wanted = len(current[key])
        while len(plan[key]) < wanted:
            node = min((n for n in brokers if n not in plan[key]), key=lambda n: (load[n], n))
            plan[key].append(node)
            load[node] += 1
    _level(plan, load)
    _spread_leaders(plan, brokers)
    return plan


def _level(plan: Plan, load: dict[int, int]) -> None:
    """Move single replicas from the fullest to the emptiest broker until they differ by at most one."""
    for _ in range(sum(load.values())):
        fullest = max(load, key=lambda n: (load[n], -n))
        emptiest = min(load, key=lambda n: (load[n], n))
        if load[fullest] - load[emptiest] <= 1:
            return
        movable = [key for key in sorted(plan) if fullest in plan[key] and emptiest not in plan[key]]
        if not movable:
            return
        replicas = plan[movable[0]]
        replicas[replicas.index(fullest)] = emptiest
        load[fullest] -= 1
        load[emptiest] += 1


def _spread_leaders(plan: Plan, brokers: list[int]) -> None:
    """The first replica of each list is the preferred leader: let each broker be it equally often."""
    leads = dict.fromkeys(brokers, 0)
    for replicas in plan.values():
        if replicas:
            leads[replicas[0]] += 1
    for key in sorted(plan):
        replicas = plan[key]
        if not replicas:
            continue
        best = min(replicas, key=lambda n: (leads[n], replicas.index(n)))
        if leads[replicas[0]] - leads[best] > 1:
            leads[replicas[0]] -= 1
            leads[best] += 1
            at = replicas.index(best)
            replicas[0], replicas[at] = replicas[at], replicas[0]
