"""Kafka's error codes: the number on the wire, the name that tools print, whether trying again may help.

The one table of errors. Codes and names are Kafka's (4.3); the sentences are ours and may be shown to users.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

__all__ = ["ErrorCode", "error_name"]


class ErrorCode(IntEnum):
    """An error code; `.retriable` says whether the same request may succeed later, `.message` explains it."""

    retriable: bool
    message: str

    if not TYPE_CHECKING:  # a checker would otherwise ask for three arguments in ErrorCode(6)

        def __new__(cls, code: int, retriable: bool, message: str) -> ErrorCode:
            member = int.__new__(cls, code)
            member._value_ = code
            member.retriable = retriable
            member.message = message
            return member

    UNKNOWN_SERVER_ERROR = -1, False, "The broker failed in a way it did not expect; its log tells more."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies outside of what the partition holds."
    CORRUPT_MESSAGE = 2, True, "The batch is damaged: its checksum, size or structure is wrong."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "There is no such topic or partition on this broker."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not lead (or does not hold) the partition."
    REQUEST_TIMED_OUT = 7, True, "The request was not finished in time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available here."
    MESSAGE_TOO_LARGE = 10, False, "A record batch is larger than the topic allows."
    STALE_CONTROLLER_EPOCH = 11, False, "The request comes from a controller that has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata of the committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection was lost before the answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "There is no coordinator at the moment."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator for the key."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name or the operation on this topic is not allowed."
    RECORD_LIST_TOO_LARGE = 18, False, "The batches are larger than a log segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than the topic demands; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "Written, but fewer replicas are in sync than the topic demands."
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, False, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member shares no protocol with the rest of the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The group does not know this member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout lies outside of the broker's limits."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; the member must join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "The principal may not do this with the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "The principal may not do this with the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "The principal may not do this with the cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is outside of the accepted range."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request is not allowed in this state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "The broker does not know this version of the request."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of live brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "A configuration value is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or breaks the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The stored message format does not support this."
    POLICY_VIOLATION = 44, False, "The request breaks a policy of this cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number leaves a gap."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer has sent this sequence number before."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is older than the current one."
    INVALID_TXN_STATE = 48, False, "The transaction's state does not allow this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is above the broker's limit or not positive."
    CONCURRENT_TRANSACTIONS = 51, True, "The previous transaction of this producer is still being completed."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The transaction coordinator has been replaced by a newer one."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "The principal may not use this transactional id."
    SECURITY_DISABLED = 54, False, "The broker runs without an authorizer."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The broker's disk failed or is full for this partition."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "The credentials were refused."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker holds no state about this producer id any more."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token belongs to somebody else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens cannot be managed over this kind of connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "The principal may not use this delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "This type of principal is not supported here."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The broker does not know this fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session is at another epoch."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener like the one this request came in on."
    TOPIC_DELETION_DISABLED = 73, False, "delete.topic.enable is off on this cluster."
    FENCED_LEADER_EPOCH = 74, True, "The request's leader epoch is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The request's leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The client's version cannot read this compression."
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since it sent this."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know its high watermark yet."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id that this answer carries."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group is full."
    FENCED_INSTANCE_ID = 82, False, "Another member took over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica that may lead is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition has the leader it should have."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is still subscribed to the topic."
    INVALID_RECORD = 87, False, "A record breaks a rule of the topic."
    UNSTABLE_OFFSET_COMMIT = 88, True, "Some offsets wait for an open transaction."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "A quota is used up for now."
    PRODUCER_FENCED = 90, False, "A newer producer has taken over this transactional id."
    RESOURCE_NOT_FOUND = 91, False, "The request names something that does not exist."
    DUPLICATE_RESOURCE = 92, False, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the rules."
    INCONSISTENT_VOTER_SET = 94, False, "The voter sets of the two sides differ."
    INVALID_UPDATE_VERSION = 95, False, "The version of this update does not fit the current state."
    FEATURE_UPDATE_FAILED = 96, False, "The feature levels could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "A forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside of the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker knows no topic of this id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A live broker holds this id already."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The log on disk belongs to another topic of this name."
    INCONSISTENT_CLUSTER_ID = 104, False, "The request comes from another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, False, "The replica may not join the ISR."
    NEW_LEADER_ELECTED = 108, False, "The change was made, and the partition has a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is in remote storage only."
    FENCED_MEMBER_EPOCH = 110, False, "The member was fenced and must join again."
    UNRELEASED_INSTANCE_ID = 111, False, "A live member still holds this group.instance.id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The broker does not offer this assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is behind the group's; heartbeat, then try again."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request was sent to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is not the current one."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry push is larger than allowed."
    INVALID_REGISTRATION = 119, False, "The broker's registration is not valid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction cannot go on; abort it and start over."
    INVALID_RECORD_STATE = 121, False, "The record's delivery state does not allow this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, True, "The broker does not know this share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session is at another epoch."
    FENCED_STATE_EPOCH = 124, False, "The share state has moved on to a newer epoch."
    INVALID_VOTER_KEY = 125, False, "The voter key does not match the receiver's."
    DUPLICATE_VOTER = 126, False, "The voter is in the set already."
    VOTER_NOT_FOUND = 127, False, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression cannot be used."
    REBOOTSTRAP_REQUIRED = 129, False, "The client must start again from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The streams topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The group runs a newer streams topology."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker holds as many share sessions as it may."


def error_name(code: int) -> str:
    """The name of a code for logs and messages; a code that we do not know yet is shown as its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"ERROR_{code}"
