-- Resources of a plan that share a sandbox: decided when the plan is made, since
-- what lies inside what may be another thing by the time it is applied.
ALTER TABLE plan_resources ADD COLUMN boundary_id VARCHAR(26) NOT NULL DEFAULT ''; -- whose sandbox; '' = its own
ALTER TABLE plan_resources ADD COLUMN sub_path BLOB NOT NULL DEFAULT x'';
