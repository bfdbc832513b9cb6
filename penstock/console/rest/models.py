"""What REST takes: bodies with their limits, and the shape of its errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=249)]
AnyName = Annotated[str, Field(min_length=1, max_length=1000)]
Partition = Annotated[int, Field(ge=0, le=2**31 - 1)]
NodeId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Settings = Annotated[dict[str, str], Field(max_length=200)]


Header = Annotated[list[str | None], Field(min_length=2, max_length=2)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Error(BaseModel):
    error: str
    hint: str | None = None


class NewTopic(Body):
    name: Name
    partitions: Annotated[int, Field(ge=-1, le=100_000)] = -1
    replicas: Annotated[int, Field(ge=-1, le=1_000)] = -1
    configs: Settings = {}


class Changes(Body):
    changes: Annotated[dict[str, str | None], Field(min_length=1, max_length=200)]
    """None takes a setting back to its default."""


class Growth(Body):
    partitions: Annotated[int, Field(ge=1, le=100_000)]


class NewMessage(Body):
    key: str | None = None
    key_encoding: Literal["base64"] | None = None
    value: Any = None
    value_encoding: Literal["base64"] | None = None
    headers: list[Header] = Field(default=[], max_length=1000)
    partition: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1
    encode: Annotated[bool, Field(description="Key and value are JSON for the topic's formats.")] = False


class Format(Body):
    """How keys or values are read; an empty kind: as they are."""

    kind: Annotated[str, Field(max_length=20)]
    schema_text: Annotated[str, Field(max_length=500_000, alias="schema")] = ""
    registry: Annotated[str, Field(max_length=500)] = ""


class Reset(Body):
    name: AnyName
    to: Annotated[str, Field(max_length=100)] | None = None
    shift: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = None
    topics: Annotated[list[Name], Field(max_length=1000)] | None = None


class PlanWanted(Body):
    topics: Annotated[list[Name], Field(max_length=10_000)] | None = None
    brokers: Annotated[list[NodeId], Field(max_length=1000)] | None = None


class Move(Body):
    topic: Name
    partition: Partition
    to: Annotated[list[NodeId], Field(min_length=1, max_length=100)]


class Moves(Body):
    moves: Annotated[list[Move], Field(min_length=1, max_length=100_000)]
    throttle: Annotated[int, Field(ge=0, le=2**53)] = 0


class Topics(Body):
    topics: Annotated[list[Name], Field(min_length=1, max_length=10_000)]


class Election(Body):
    topic: Name | None = None
    partitions: Annotated[list[Partition], Field(max_length=100_000)] | None = None


class TransactionEnd(Body):
    id: AnyName


class HangingEnd(Body):
    topic: Name
    partition: Partition
    producer_id: Annotated[int, Field(ge=0, le=2**63 - 1)]


class Password(Body):
    name: AnyName
    password: Annotated[str, Field(min_length=1, max_length=1000)]
    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"


class Acl(Body):
    principal: AnyName
    permission: Literal["allow", "deny"] = "allow"
    operation: Annotated[str, Field(min_length=1, max_length=50)]
    resource: AnyName
    """As the command line writes it: topic:orders, topic:ord*, group:*, cluster."""
    host: AnyName = "*"


class Quota(Body):
    whose: AnyName
    """As the command line writes it: user:anna, client:app, ip:10.0.0.1; * for the default."""
    quota: Annotated[str, Field(min_length=1, max_length=50)]
    limit: Annotated[float, Field(ge=0, le=2**53)] | None
    """None takes it away."""


class Desired(Body):
    desired: Literal["running", "stopped"]


class SpecText(Body):
    text: Annotated[str, Field(min_length=1, max_length=500_000)]


class SpecApply(SpecText):
    expected: Annotated[int, Field(ge=0, le=2**53)]
    """The generation that the change was made of; 0 for a pipeline that is not there yet."""


class PipelineReset(Body):
    backfill: bool = False


class Redrive(Body):
    reason: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    skip: bool = False
    dry_run: bool = False


class Question(Body):
    text: Annotated[str, Field(min_length=1, max_length=20_000)]
    limit: Annotated[int, Field(ge=1, le=5_000)] = 500
    since: Annotated[str, Field(max_length=100)] | None = None
    seconds: Annotated[int, Field(ge=1, le=300)] = 120
    name: Annotated[str, Field(min_length=1, max_length=80)] = "query"
    """What cancelling asks for."""


class SavedQuery(Body):
    name: Annotated[str, Field(min_length=1, max_length=80)]
    text: Annotated[str, Field(min_length=1, max_length=20_000)]


class QueryName(Body):
    name: Annotated[str, Field(min_length=1, max_length=80)]
