CREATE TABLE events (
    ord        INTEGER     NOT NULL PRIMARY KEY,
    event_id   VARCHAR(26) NOT NULL UNIQUE,
    plan_id    VARCHAR(26) REFERENCES v3_plans (plan_id),
    kind       TEXT        NOT NULL,
    message    TEXT        NOT NULL,
    data_json  TEXT        NOT NULL,
    created_at VARCHAR(30) NOT NULL
);
CREATE INDEX ix_events_plan ON events (plan_id, ord);

-- Notes for people; the held lock files are the truth.
CREATE TABLE locks (
    name        TEXT        NOT NULL PRIMARY KEY,
    plan_id     VARCHAR(26) NOT NULL,
    holder      TEXT        NOT NULL,
    acquired_at VARCHAR(30) NOT NULL
);
