"""The names that the packages export: programs depend on them, so none goes or comes unnoticed."""

from __future__ import annotations

from importlib import import_module

import pytest

EXPORTS = {
    "engine": """
        Admission Answer Backoff BranchOutcome CancelReason CancelToken Cancelled ChannelClosed
        CheckpointPolicy Chunk ChunkStream ChunkType Clock CompilationFailed CompiledGraph Completed
        DefinitionInvalid Failed FailureKind Fatal Graph GraphDefinition GraphError GraphInvalid
        HistoryEntry HistoryTree Interrupted Jitter Join Joined LastFailure LeaseOptions
        LeaseRenewer LoopRenewer ManualClock NodeContext NodeError NotAdmitted NotAdmittedReason
        Observer OutcomeStatus Partial Problem ProblemKind Question RecoverOptions RecoverReport
        Recovered RefusalCode Refused Retry RowMarks RunEvent RunOptions RunResult RunTelemetry
        Scheduler SchedulerHook SchedulerOptions SchedulerSnapshot Skipped StateError Stopped
        SystemClock Telemetry TenantSnapshot ThreadPath ThreadRenewer Threads Transient WakeOptions
        WakeReason WakeReport Woken all_of check_shape first_matching first_success problems_of
        quorum read_definition thread_path to_dot to_mermaid tree_of
    """,
    "engine.testing": """
        TIMES_OUT BrokenByCrashes CrashPoint Doubled Effect Effects Execution Harness InTurn Lost NewServices
        NewStore Played Repeated Report Script ScriptFailed SkippingClock Stop Trial Unexplorable explore
    """,
    "stores": """
        Acquired Checkpoint CheckpointQuery CheckpointRetention CheckpointStore CorruptRow Decision
        EMPTY_LOG DeltaOptions GraphIdentity GroupCommitOptions Held InvalidRequest Json Lease
        LeaseLost LeaseStore LeasesUnsupported LogPage MemoryStore NewerSchema NotLatest Note
        NoteKind NoteStore
        OffloadOptions OutcropError RetryOptions Row Saved SqliteStore Status Store StoreError
        ThreadPage ThreadQuery ThreadState ThreadSummary
        Unavailable UnreadableThread Wait WaitKind open_store
    """,
    "engine.host": """
        OLDEST Driver DriverStatus Health Host HostRefused HostSettings LeaseSettings
        MemoryRetentionDriver MemoryRetentionSettings MemorySettings RecoveryDriver RecoverySettings
        RetentionDriver RetentionSettings RunsSettings SweepRefused Task WakeDriver WakeSettings
        check_health run_rounds
    """,
    "stores.history": """
        HistoryStore InProcessHistoryStore Message Role SqliteHistoryStore open_history
    """,
    "stores.longterm": """
        Embedding Hnsw InProcessLongTermStore Listing LongTermRetention LongTermStore Match Purge
        Record RecordKey RecordPage Search SqliteLongTermStore open_long_term
    """,
    "topics": """
        BadCommand BadEvent BadOutcome BrokerUnreachable Cancel ClientClosed Command CommandType DecisionBody
        EmbeddedBroker End ErrorBody Event EventType GraphRef Handle MessageTooLarge MissingExtra Outcome
        OutcomeStatus OutcomeTimeout OutcomesLost QuestionBody Recover Rerun Resume Run SendFailed Signal
        ThreadsClient TopicMissing TopicNames TopicRefused TopicsError Update WaitBody Wake decode_command
        decode_event decode_outcome encode_command encode_event encode_outcome partition_for
    """,
    "worker": """
        CommitRefused ExitCode GraphsNotFound LogFailed OffsetLost PublishFailed Settings
        SettingsInvalid TopicsMissing WorkerError load_graphs load_settings
    """,
}


@pytest.mark.parametrize("package", EXPORTS)
def test_exported_names_are_these_and_there(package: str) -> None:
    module = import_module(f"outcrop.{package}")
    assert sorted(module.__all__) == sorted(EXPORTS[package].split())
    assert all(hasattr(module, name) for name in module.__all__)
