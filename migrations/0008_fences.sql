-- Each claim gets a number of its own, its fence, which goes into the engines with what is written: an engine refuses
-- what comes late under an older one. `fence` is that of the last application that was recorded.
--
-- Where a worker died, or an engine did not answer, a write may still be under way. Such a row is applied once more, at
-- `confirm_at`, and a tombstone stays for so long.
ALTER TABLE dirty ADD COLUMN fence bigint NOT NULL DEFAULT 0, ADD COLUMN confirm_at timestamptz;
CREATE INDEX dirty_unconfirmed ON dirty (sink, confirm_at) WHERE confirm_at IS NOT NULL;
-- Who holds what: one worker at a time brings a tenant's documents to an engine in which they are linked.
CREATE INDEX dirty_held ON dirty (sink, tenant_id) WHERE claimed_by IS NOT NULL;
-- What was refused, for those who look after it.
CREATE INDEX dirty_refused ON dirty (tenant_id, document_id, sink) WHERE error IS NOT NULL;
