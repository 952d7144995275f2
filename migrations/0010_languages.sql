-- When a namespace's language changes, its documents are indexed again, in order of id: `worded_to` is how far that has
-- come, null when it is done.
ALTER TABLE namespaces ADD COLUMN worded_to text COLLATE "C";
CREATE INDEX namespaces_to_word ON namespaces (tenant_id, name) WHERE worded_to IS NOT NULL;
-- A worker has to see where that is to be done.
CREATE POLICY service ON namespaces FOR SELECT USING (app_role() = 'worker' AND worded_to IS NOT NULL);
