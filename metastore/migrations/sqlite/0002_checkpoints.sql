-- Rows are immutable, apart from the note that a payload is damaged.
CREATE TABLE checkpoint_metadata (
    checkpoint_id   VARCHAR(26) NOT NULL PRIMARY KEY,
    plan_id         VARCHAR(26) NOT NULL REFERENCES v3_plans (plan_id),
    decision_id     VARCHAR(26),
    checkpoint_type TEXT        NOT NULL,
    resource_id     VARCHAR(26),
    sandbox_ref     TEXT        NOT NULL,
    filesystem_path TEXT        NOT NULL,
    size_bytes      INTEGER     NOT NULL,
    created_at      VARCHAR(30) NOT NULL,
    metadata_json   TEXT        NOT NULL,
    seq             BIGINT      NOT NULL,
    damaged         BOOLEAN     NOT NULL,
    UNIQUE (plan_id, seq)
);
CREATE INDEX idx_checkpoints_plan ON checkpoint_metadata (plan_id);
CREATE INDEX ix_checkpoint_metadata_created_at ON checkpoint_metadata (created_at);

CREATE TABLE checkpoint_refs (
    checkpoint_id VARCHAR(26) NOT NULL REFERENCES checkpoint_metadata (checkpoint_id) ON DELETE CASCADE,
    position      INTEGER     NOT NULL,
    sandbox_id    VARCHAR(26) NOT NULL REFERENCES sandboxes (sandbox_id),
    resource_id   VARCHAR(26) NOT NULL,
    ref           TEXT        NOT NULL,
    size_bytes    BIGINT      NOT NULL,
    PRIMARY KEY (checkpoint_id, sandbox_id)
);

CREATE TABLE checkpoint_events (
    ord           INTEGER     NOT NULL PRIMARY KEY,
    plan_id       VARCHAR(26) NOT NULL REFERENCES v3_plans (plan_id),
    checkpoint_id VARCHAR(26) NOT NULL REFERENCES checkpoint_metadata (checkpoint_id) ON DELETE CASCADE,
    trigger_name  TEXT        NOT NULL,
    created_at    VARCHAR(30) NOT NULL
);
CREATE INDEX ix_checkpoint_events_plan ON checkpoint_events (plan_id);
CREATE INDEX ix_checkpoint_events_checkpoint ON checkpoint_events (checkpoint_id);

CREATE TABLE tool_invocations (
    ord                  INTEGER     NOT NULL PRIMARY KEY,
    invocation_id        VARCHAR(26) NOT NULL UNIQUE,
    plan_id              VARCHAR(26) NOT NULL REFERENCES v3_plans (plan_id),
    tool                 TEXT        NOT NULL,
    resource             TEXT        NOT NULL,
    step_id              TEXT        NOT NULL,
    input                BLOB,
    output               BLOB,
    exit_code            INTEGER     NOT NULL,
    stdout               BLOB        NOT NULL,
    stderr               BLOB        NOT NULL,
    before_checkpoint_id VARCHAR(26) NOT NULL,
    after_checkpoint_id  VARCHAR(26) NOT NULL,
    after_seq            BIGINT      NOT NULL, -- the call came after the checkpoint with this seq
    rolled_back          BOOLEAN     NOT NULL,
    enforced             TEXT        NOT NULL,
    error                TEXT        NOT NULL,
    started_at           VARCHAR(30) NOT NULL,
    ended_at             VARCHAR(30)
);
CREATE INDEX ix_tool_invocations_plan ON tool_invocations (plan_id, ord);

CREATE TABLE changeset_entries (
    invocation_id VARCHAR(26) NOT NULL REFERENCES tool_invocations (invocation_id) ON DELETE CASCADE,
    position      INTEGER     NOT NULL,
    resource      TEXT        NOT NULL,
    path          BLOB        NOT NULL,
    old_path      BLOB        NOT NULL,
    change_kind   TEXT        NOT NULL,
    insertions    BIGINT      NOT NULL,
    deletions     BIGINT      NOT NULL,
    is_binary     BOOLEAN     NOT NULL,
    PRIMARY KEY (invocation_id, position)
);

CREATE TABLE decisions (
    ord           INTEGER     NOT NULL PRIMARY KEY,
    decision_id   VARCHAR(26) NOT NULL UNIQUE,
    plan_id       VARCHAR(26) NOT NULL REFERENCES v3_plans (plan_id),
    parent_id     VARCHAR(26) NOT NULL,
    kind          TEXT        NOT NULL,
    question      TEXT        NOT NULL,
    choice        TEXT        NOT NULL,
    checkpoint_id VARCHAR(26) NOT NULL,
    made_seq      BIGINT      NOT NULL, -- superseded by a rollback to a smaller seq
    status        TEXT        NOT NULL,
    created_at    VARCHAR(30) NOT NULL
);
CREATE INDEX ix_decisions_plan ON decisions (plan_id, ord);
