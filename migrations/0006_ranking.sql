-- Defaults for searches, by tenant and by namespace.
ALTER TABLE tenants ADD COLUMN ranking jsonb;
ALTER TABLE namespaces ADD COLUMN ranking jsonb;

-- What is known of candidates without their content, in one round trip: it says for whom it works itself.
-- octet_length, as it does not unpack a long text to measure it.
CREATE FUNCTION facts_by_id(tenant uuid, project text, reach text[], ids text[], visible text[], grouped_by text[])
RETURNS TABLE (id text, namespace text, title text, length integer, type text, confidence float8, priority smallint,
               created_at timestamptz, cycle float8, "group" text, accesses bigint)
LANGUAGE plpgsql ROWS 300 AS $$
BEGIN
    PERFORM set_config('app.tenant', tenant::text, true), set_config('app.project', project, true),
        set_config('app.namespaces', reach::text, true);
    RETURN QUERY
    SELECT d.id, d.namespace, d.title, octet_length(d.content), d.type, d.confidence, d.priority, d.created_at,
        CASE WHEN jsonb_typeof(d.metadata -> 'cycle') = 'number' THEN (d.metadata ->> 'cycle')::float8 END,
        d.metadata #>> grouped_by, coalesce(a.count, 0)
    FROM documents d LEFT JOIN accesses a ON a.tenant_id = tenant AND a.id = d.id
    WHERE d.tenant_id = tenant AND d.id = ANY (ids) AND (visible IS NULL OR d.namespace = ANY (visible));
END
$$;
REVOKE ALL ON FUNCTION facts_by_id FROM PUBLIC;
GRANT EXECUTE ON FUNCTION facts_by_id TO braid_service;
