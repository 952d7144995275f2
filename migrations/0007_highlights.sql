-- Which words mean the same, to PostgreSQL: those of texts and those of a query, in the language of each namespace.
-- One round trip: it says for whom it works itself. Words of which nothing is left, such as "the", are like no other.
CREATE FUNCTION words_alike(tenant uuid, project text, reach text[], names text[], words text[], wanted text[])
RETURNS TABLE (namespace text, word text, alike text) LANGUAGE plpgsql ROWS 100 AS $$
BEGIN
    PERFORM set_config('app.tenant', tenant::text, true), set_config('app.project', project, true),
        set_config('app.namespaces', reach::text, true);
    RETURN QUERY
    WITH spoken AS MATERIALIZED (
        SELECT n.name, n.language FROM namespaces n WHERE n.tenant_id = tenant AND n.name = ANY (names)
    ), looked_for AS MATERIALIZED (
        SELECT s.name, w AS word, unnest(tsvector_to_array(to_tsvector(s.language, w))) AS lexeme
        FROM spoken s, unnest(wanted) AS w
    ), there AS MATERIALIZED (
        SELECT s.name, t.word, unnest(tsvector_to_array(to_tsvector(s.language, t.word))) AS lexeme
        FROM unnest(names, words) AS t (name, word) JOIN spoken s ON s.name = t.name
    )
    SELECT t.name, t.word, l.word FROM there t JOIN looked_for l ON l.name = t.name AND l.lexeme = t.lexeme;
END
$$;
REVOKE ALL ON FUNCTION words_alike FROM PUBLIC;
GRANT EXECUTE ON FUNCTION words_alike TO braid_service;
