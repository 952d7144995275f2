-- The highest BM25 that any document could reach for a query: every term's impact is below 1, so the sum of its weights.
-- What a score is measured by where it must mean something by itself.
CREATE FUNCTION query_maximum(tenant uuid, typed text, visible text[]) RETURNS float8
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('app.tenant', tenant::text, true);
    RETURN (SELECT sum(q.idf) FROM query_terms(tenant, typed,
        ARRAY(SELECT DISTINCT n.language FROM namespaces n
              WHERE n.tenant_id = tenant AND (visible IS NULL OR n.name = ANY (visible)))) q);
END
$$;
REVOKE ALL ON FUNCTION query_maximum FROM PUBLIC;
GRANT EXECUTE ON FUNCTION query_maximum TO braid_service;
