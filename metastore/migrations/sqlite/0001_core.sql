CREATE TABLE resources (
    resource_id VARCHAR(26)  NOT NULL PRIMARY KEY,
    name        VARCHAR(100) NOT NULL UNIQUE,
    type        TEXT         NOT NULL,
    location    BLOB         NOT NULL, -- a path is bytes, not text
    branch      TEXT         NOT NULL,
    strategy    TEXT         NOT NULL,
    read_only   BOOLEAN      NOT NULL,
    created_at  VARCHAR(30)  NOT NULL
);
CREATE INDEX ix_resources_location ON resources (type, location);

CREATE TABLE projects (
    project_id VARCHAR(26)  NOT NULL PRIMARY KEY,
    name       VARCHAR(100) NOT NULL UNIQUE,
    created_at VARCHAR(30)  NOT NULL
);

CREATE TABLE project_resources (
    project_id  VARCHAR(26) NOT NULL REFERENCES projects (project_id) ON DELETE CASCADE,
    resource_id VARCHAR(26) NOT NULL REFERENCES resources (resource_id),
    position    INTEGER     NOT NULL,
    PRIMARY KEY (project_id, resource_id)
);
CREATE INDEX ix_project_resources_resource ON project_resources (resource_id);

CREATE TABLE actions (
    action_id           VARCHAR(26)  NOT NULL PRIMARY KEY,
    name                VARCHAR(100) NOT NULL UNIQUE,
    description         TEXT         NOT NULL,
    arguments_json      TEXT         NOT NULL,
    require_checkpoints BOOLEAN      NOT NULL,
    read_only           BOOLEAN      NOT NULL,
    steps_json          TEXT         NOT NULL,
    created_at          VARCHAR(30)  NOT NULL
);

CREATE TABLE v3_plans (
    plan_id              VARCHAR(26)  NOT NULL PRIMARY KEY,
    name                 VARCHAR(100) NOT NULL,
    action               VARCHAR(100) NOT NULL,
    arguments_json       TEXT         NOT NULL,
    phase                TEXT         NOT NULL,
    state                TEXT         NOT NULL,
    actor                TEXT         NOT NULL,
    profile              TEXT         NOT NULL,
    require_checkpoints  BOOLEAN      NOT NULL,
    read_only            BOOLEAN      NOT NULL,
    include_uncommitted  BOOLEAN      NOT NULL,
    error_json           TEXT,
    parent_plan_id       VARCHAR(26)  REFERENCES v3_plans (plan_id),
    spawn_seq            BIGINT       NOT NULL DEFAULT 0, -- place among the parent's checkpoints
    checkpoint_seq       BIGINT       NOT NULL DEFAULT 0, -- the last seq given out
    active_checkpoint_id VARCHAR(26),
    created_at           VARCHAR(30)  NOT NULL,
    updated_at           VARCHAR(30)  NOT NULL,
    applied_at           VARCHAR(30)
);
CREATE UNIQUE INDEX ux_v3_plans_live_name ON v3_plans (name)
    WHERE name <> '' AND state <> 'applied' AND state <> 'cancelled';
CREATE INDEX ix_v3_plans_created_at ON v3_plans (created_at);
CREATE INDEX ix_v3_plans_parent ON v3_plans (parent_plan_id);

-- A copy of each resource: a plan keeps what it was made with.
CREATE TABLE plan_resources (
    plan_id     VARCHAR(26)  NOT NULL REFERENCES v3_plans (plan_id) ON DELETE CASCADE,
    position    INTEGER      NOT NULL,
    resource_id VARCHAR(26)  NOT NULL,
    name        VARCHAR(100) NOT NULL,
    type        TEXT         NOT NULL,
    location    BLOB         NOT NULL,
    branch      TEXT         NOT NULL,
    strategy    TEXT         NOT NULL,
    read_only   BOOLEAN      NOT NULL,
    created_at  VARCHAR(30)  NOT NULL,
    PRIMARY KEY (plan_id, position),
    UNIQUE (plan_id, resource_id)
);
CREATE INDEX ix_plan_resources_resource ON plan_resources (resource_id);

CREATE TABLE plan_projects (
    plan_id  VARCHAR(26)  NOT NULL REFERENCES v3_plans (plan_id) ON DELETE CASCADE,
    position INTEGER      NOT NULL,
    name     VARCHAR(100) NOT NULL,
    PRIMARY KEY (plan_id, position)
);
CREATE INDEX ix_plan_projects_name ON plan_projects (name);

CREATE TABLE plan_steps (
    plan_id              VARCHAR(26) NOT NULL REFERENCES v3_plans (plan_id) ON DELETE CASCADE,
    position             INTEGER     NOT NULL,
    step_id              TEXT        NOT NULL,
    tool                 TEXT        NOT NULL,
    resource             TEXT        NOT NULL,
    with_json            TEXT        NOT NULL,
    on_failure           TEXT        NOT NULL,
    continue_on_failure  BOOLEAN     NOT NULL,
    status               TEXT        NOT NULL,
    before_checkpoint_id VARCHAR(26) NOT NULL,
    after_checkpoint_id  VARCHAR(26) NOT NULL,
    error                TEXT        NOT NULL,
    PRIMARY KEY (plan_id, position),
    UNIQUE (plan_id, step_id)
);

CREATE TABLE sandboxes (
    sandbox_id    VARCHAR(26) NOT NULL PRIMARY KEY,
    plan_id       VARCHAR(26) NOT NULL REFERENCES v3_plans (plan_id) ON DELETE CASCADE,
    resource_id   VARCHAR(26) NOT NULL,
    strategy      TEXT        NOT NULL,
    status        TEXT        NOT NULL,
    path          BLOB        NOT NULL,
    private_dir   BLOB        NOT NULL,
    metadata_json TEXT        NOT NULL,
    base_ref      TEXT        NOT NULL,
    sealed_ref    TEXT        NOT NULL,
    apply_state   TEXT        NOT NULL,
    created_at    VARCHAR(30) NOT NULL,
    updated_at    VARCHAR(30) NOT NULL
);
CREATE UNIQUE INDEX ux_sandboxes_present ON sandboxes (plan_id, resource_id) WHERE status <> 'CLEANED_UP';
CREATE INDEX ix_sandboxes_plan ON sandboxes (plan_id);
