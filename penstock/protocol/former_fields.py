"""Fields that the newest version of a message lacks: API → direction → struct → name → Kafka's default.

Every message class has the fields of all its versions, whichever comes first over the wire. kio has a module per
version, and to load them all takes seconds; what the newest version does not show is written down here instead. A test
holds this table against all of kio's schemas. A list is an array.
"""

from __future__ import annotations

from typing import Any, Final

FORMER_FIELDS: Final[dict[str, dict[str, dict[str, dict[str, Any]]]]] = {
    "produce": {
        "request": {"TopicProduceData": {"name": ""}},
        "response": {"TopicProduceResponse": {"name": ""}},
    },
    "fetch": {
        "request": {
            "FetchRequest": {"replica_id": -1},
            "FetchTopic": {"topic": ""},
            "ForgottenTopic": {"topic": ""},
        },
        "response": {"FetchableTopicResponse": {"topic": ""}},
    },
    "metadata": {
        "request": {"MetadataRequest": {"include_cluster_authorized_operations": False}},
        "response": {"MetadataResponse": {"cluster_authorized_operations": -(2**31)}},
    },
    "offset_commit": {
        "request": {"OffsetCommitRequest": {"retention_time_ms": -1}, "OffsetCommitRequestTopic": {"name": ""}},
        "response": {"OffsetCommitResponseTopic": {"name": ""}},
    },
    "offset_fetch": {
        "request": {
            "OffsetFetchRequest": {"group_id": "", "topics": []},
            "OffsetFetchRequestTopic": {"name": "", "partition_indexes": []},
            "OffsetFetchRequestTopics": {"name": ""},
        },
        "response": {
            "OffsetFetchResponse": {"topics": [], "error_code": 0},
            "OffsetFetchResponseTopic": {"name": "", "partitions": []},
            "OffsetFetchResponsePartition": {
                "partition_index": 0,
                "committed_offset": 0,
                "committed_leader_epoch": -1,
                "metadata": None,
                "error_code": 0,
            },
            "OffsetFetchResponseTopics": {"name": ""},
        },
    },
    "find_coordinator": {
        "request": {"FindCoordinatorRequest": {"key": ""}},
        "response": {
            "FindCoordinatorResponse": {"error_code": 0, "error_message": None, "node_id": 0, "host": "", "port": 0}
        },
    },
    "leave_group": {"request": {"LeaveGroupRequest": {"member_id": ""}}},
    "delete_topics": {"request": {"DeleteTopicsRequest": {"topic_names": []}}},
    "add_partitions_to_txn": {
        "request": {
            "AddPartitionsToTxnRequest": {
                "v3_and_below_transactional_id": "",
                "v3_and_below_producer_id": 0,
                "v3_and_below_producer_epoch": 0,
                "v3_and_below_topics": [],
            }
        },
        "response": {"AddPartitionsToTxnResponse": {"results_by_topic_v3_and_below": []}},
    },
    "end_quorum_epoch": {"request": {"PartitionData": {"preferred_successors": []}}},
    "alter_partition": {"request": {"PartitionData": {"new_isr": []}}},
    "update_features": {
        "request": {"FeatureUpdateKey": {"allow_downgrade": False}},
        "response": {
            "UpdateFeaturesResponse": {"results": []},
            "UpdatableFeatureResult": {"feature": "", "error_code": 0, "error_message": None},
        },
    },
}
