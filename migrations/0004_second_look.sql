-- What a search looks at beyond the tiers: which documents its best hits are linked with, how often documents were
-- found, and whether anything changed since an answer was remembered.

-- A document may have more links than a search can look at: the strongest first, without sorting them all.
CREATE INDEX edges_from_by_strength ON edges (tenant_id, source, strength DESC, target, type);
CREATE INDEX edges_to_by_strength ON edges (tenant_id, target, strength DESC, source, type);
DROP INDEX edges_by_target;

-- How often a document was a result. Counted in memory and added up here now and then: see service/stores/accesses.py.
CREATE TABLE accesses (
    tenant_id uuid NOT NULL,
    id        text COLLATE "C" NOT NULL,
    count     bigint NOT NULL CHECK (count >= 0),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, id) REFERENCES documents ON DELETE CASCADE
) WITH (fillfactor = 70);

-- Grows with everything that can change an answer of the tenant: see service/stores/epochs.py. In slots, so that a
-- tenant's writers don't queue for one row.
CREATE TABLE epochs (
    tenant_id uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    slot      smallint NOT NULL,
    epoch     bigint NOT NULL,
    PRIMARY KEY (tenant_id, slot)
) WITH (fillfactor = 50);

DO $$
DECLARE
    wall text;
BEGIN
    FOREACH wall IN ARRAY ARRAY['accesses', 'epochs'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', wall);
        EXECUTE format('CREATE POLICY tenant ON %I USING (tenant_id = app_tenant())', wall);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON accesses, epochs TO braid_service;

-- Asked before every search that may be answered from memory, so in one round trip: it says for whom it works itself.
CREATE FUNCTION tenant_epoch(tenant uuid) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('app.tenant', tenant::text, true);
    RETURN (SELECT coalesce(sum(e.epoch), 0) FROM epochs e WHERE e.tenant_id = tenant);
END
$$;
REVOKE ALL ON FUNCTION tenant_epoch FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenant_epoch TO braid_service;

-- The `fan` documents that each seed is best linked with, in either direction, of those that the caller may see, that
-- pass the condition, and that stand in `among` where that is given. Best by strength times the factor of the link's
-- type. Of a seed with very many links the 1,000 strongest each way are looked at.
CREATE FUNCTION linked_documents(tenant uuid, project text, reach text[], seeds text[], among text[], visible text[],
                                 condition jsonpath, operands jsonb, types text[], factors float8[], other float8,
                                 fan integer)
RETURNS TABLE (seed text, id text, type text, strength float8) LANGUAGE plpgsql ROWS 25 AS $$
BEGIN
    PERFORM set_config('app.tenant', tenant::text, true), set_config('app.project', project, true),
        set_config('app.namespaces', reach::text, true);
    RETURN QUERY
    SELECT s.seed, best.id, best.type, best.strength
    FROM unnest(seeds) AS s (seed)
    CROSS JOIN LATERAL (SELECT * FROM (
        SELECT DISTINCT ON (link.id) link.id, link.type, link.strength,
            link.strength * coalesce(factors[array_position(types, link.type)], other) AS worth
        FROM ((SELECT e.target AS id, e.type, e.strength FROM edges e
               WHERE e.tenant_id = tenant AND e.source = s.seed
               ORDER BY e.strength DESC, e.target, e.type LIMIT 1000)
              UNION ALL
              (SELECT e.source, e.type, e.strength FROM edges e
               WHERE e.tenant_id = tenant AND e.target = s.seed
               ORDER BY e.strength DESC, e.source, e.type LIMIT 1000)) AS link
        JOIN documents d ON d.tenant_id = tenant AND d.id = link.id
        WHERE link.id <> s.seed AND (among IS NULL OR link.id = ANY (among))
            AND (visible IS NULL OR d.namespace = ANY (visible))
            AND (condition IS NULL OR jsonb_path_match(d.traits, condition, operands))
        ORDER BY link.id, worth DESC, link.type) AS each_once
        WHERE each_once.worth > 0 ORDER BY each_once.worth DESC, each_once.id LIMIT fan
    ) AS best;
END
$$;
REVOKE ALL ON FUNCTION linked_documents FROM PUBLIC;
GRANT EXECUTE ON FUNCTION linked_documents TO braid_service;
