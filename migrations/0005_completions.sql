-- What is typed, completed: titles, the names that documents are about, and their words, each with how many documents
-- of a namespace have it.
--
-- A write only notes what came and what went, in its own transaction, and waits for nobody: a word that all documents
-- share would otherwise make all writers queue for its row. A worker folds these notes into `completions`.

CREATE TABLE completions (
    tenant_id uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    kind      text COLLATE "C" NOT NULL,
    folded    text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    shown     text NOT NULL,
    documents integer NOT NULL,
    -- Columns, as row security would keep an index over expressions from being used. The magnitude changes seldom, and
    -- so most changes of a count touch no index.
    first     text COLLATE "C" NOT NULL GENERATED ALWAYS AS (left(folded, 1)) STORED,
    two       text COLLATE "C" NOT NULL GENERATED ALWAYS AS (left(folded, 2)) STORED,
    magnitude smallint NOT NULL GENERATED ALWAYS AS (
        CASE WHEN documents > 0 THEN floor(ln(documents) / ln(2.0)) ELSE -1 END) STORED,
    PRIMARY KEY (tenant_id, kind, folded, namespace)
) WITH (fillfactor = 80);
CREATE INDEX completions_by_first ON completions (tenant_id, kind, first, magnitude DESC, folded);
CREATE INDEX completions_by_two ON completions (tenant_id, kind, two, magnitude DESC, folded);
CREATE INDEX completions_without_documents ON completions (tenant_id) WHERE magnitude < 0;

-- A version of a document that came (sign 1) or went (-1). What came is read from `documents`; what went is kept here.
CREATE TABLE completion_changes (
    tenant_id uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    id        text COLLATE "C" NOT NULL,
    version   bigint NOT NULL,
    sign      smallint NOT NULL,
    namespace text COLLATE "C",
    title     text,
    entities  text[],
    content   text
);
CREATE INDEX completion_changes_by_id ON completion_changes (tenant_id, id);

DO $$
DECLARE
    wall text;
BEGIN
    FOREACH wall IN ARRAY ARRAY['completions', 'completion_changes'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', wall);
        EXECUTE format('CREATE POLICY tenant ON %I USING (tenant_id = app_tenant())', wall);
    END LOOP;
END $$;
CREATE POLICY reach ON completions AS RESTRICTIVE USING (
    (SELECT app_project() IS NULL AND app_namespaces() IS NULL)
    OR EXISTS (SELECT FROM namespaces n WHERE n.tenant_id = completions.tenant_id AND n.name = completions.namespace));
GRANT SELECT, INSERT, UPDATE, DELETE ON completions, completion_changes TO braid_service;
GRANT SELECT (tenant_id) ON completion_changes TO braid_search;

-- As it is compared and shown: one blank between words, 200 characters at most; nobody types more of a title.
CREATE FUNCTION on_one_line(text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT ltrim(regexp_replace(left($1, 200), '\s+', ' ', 'g'))
$$;

-- What one document completes. Words are those of the title and of the first 10,000 characters.
CREATE FUNCTION completions_of(title text, entities text[], content text)
RETURNS TABLE (kind text, folded text, shown text) LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 100 AS $$
    SELECT 'title', lower(line), line FROM rtrim(on_one_line(title)) AS line WHERE line <> ''
    UNION ALL
    SELECT 'entity', lower(line), min(line COLLATE "C")
    FROM unnest(entities) AS name, rtrim(on_one_line(name)) AS line WHERE line <> '' GROUP BY 2
    UNION ALL
    SELECT 'term', word, word
    FROM unnest(tsvector_to_array(to_tsvector('simple', translate(title || ' ' || left(content, 10000), '/', ' '))))
        AS word WHERE length(word) BETWEEN 2 AND 40 AND word ~ '^[[:alnum:]]'
$$;

CREATE FUNCTION note_completions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO completion_changes
        SELECT tenant_id, id, version, -1, namespace, title, entities, left(content, 10000) FROM lost
        -- A tenant that is being deleted takes everything along.
        WHERE EXISTS (SELECT FROM tenants t WHERE t.id = lost.tenant_id);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO completion_changes (tenant_id, id, version, sign) SELECT tenant_id, id, version, 1 FROM gained;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER completions_gained AFTER INSERT ON documents
    REFERENCING NEW TABLE AS gained FOR EACH STATEMENT EXECUTE FUNCTION note_completions();
CREATE TRIGGER completions_changed AFTER UPDATE ON documents
    REFERENCING OLD TABLE AS lost NEW TABLE AS gained FOR EACH STATEMENT EXECUTE FUNCTION note_completions();
CREATE TRIGGER completions_lost AFTER DELETE ON documents
    REFERENCING OLD TABLE AS lost FOR EACH STATEMENT EXECUTE FUNCTION note_completions();

-- Documents that are there already. Row security binds the owner too, but for this moment.
ALTER TABLE documents NO FORCE ROW LEVEL SECURITY;
ALTER TABLE completion_changes NO FORCE ROW LEVEL SECURITY;
INSERT INTO completion_changes (tenant_id, id, version, sign) SELECT tenant_id, id, version, 1 FROM documents;
ALTER TABLE documents FORCE ROW LEVEL SECURITY;
ALTER TABLE completion_changes FORCE ROW LEVEL SECURITY;

-- A worker has to know who has changes, and no more.
CREATE FUNCTION tenants_to_complete(most integer) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp ROWS 10 AS $$
    WITH RECURSIVE behind AS (  -- one step of the index a tenant, however many changes each has
        (SELECT tenant_id AS tenant FROM public.completion_changes ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT (SELECT tenant_id FROM public.completion_changes WHERE tenant_id > tenant ORDER BY 1 LIMIT 1)
        FROM behind WHERE tenant IS NOT NULL
    )
    SELECT tenant FROM behind WHERE tenant IS NOT NULL LIMIT most
$$;
ALTER FUNCTION tenants_to_complete OWNER TO braid_search;
REVOKE ALL ON FUNCTION tenants_to_complete FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_to_complete TO braid_service;

-- Folds the changes of some of a tenant's documents; true while there are more. A version that came and went in the
-- meantime cancels itself out, so one that only came is the document as it is.
--
-- It follows indexes whatever the statistics say: they lag behind while a tenant is loaded.
CREATE FUNCTION fold_completions(most integer) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    tenant uuid := app_tenant();
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('completions'), hashtext(tenant::text)) THEN
        RETURN false;
    END IF;
    WITH picked AS (
        SELECT DISTINCT c.id FROM completion_changes c WHERE c.tenant_id = tenant ORDER BY c.id LIMIT most
    ), taken AS (
        DELETE FROM completion_changes c USING picked p WHERE c.tenant_id = tenant AND c.id = p.id RETURNING c.*
    ), left_over AS (
        SELECT t.id, t.version, sum(t.sign) AS sign, min(t.namespace) AS namespace, min(t.title) AS title,
            min(t.entities) AS entities, min(t.content) AS content
        FROM taken t GROUP BY 1, 2 HAVING sum(t.sign) <> 0
    ), texts AS (
        SELECT 1 AS sign, d.namespace, d.title, d.entities, d.content
        FROM left_over o JOIN documents d ON d.tenant_id = tenant AND d.id = o.id WHERE o.sign > 0
        UNION ALL
        SELECT -1, o.namespace, o.title, o.entities, o.content FROM left_over o WHERE o.sign < 0
    )
    INSERT INTO completions AS c (tenant_id, kind, folded, namespace, shown, documents)
    SELECT tenant, o.kind, o.folded, t.namespace, coalesce(min(o.shown) FILTER (WHERE t.sign > 0), min(o.shown)),
        sum(t.sign)
    FROM texts t, completions_of(t.title, t.entities, t.content) o
    GROUP BY 1, 2, 3, 4 HAVING sum(t.sign) <> 0
    ON CONFLICT (tenant_id, kind, folded, namespace) DO UPDATE SET documents = c.documents + excluded.documents,
        shown = CASE WHEN excluded.documents > 0 THEN excluded.shown ELSE c.shown END;
    DELETE FROM completions c WHERE c.tenant_id = tenant AND c.magnitude < 0;
    RETURN EXISTS (SELECT FROM completion_changes c WHERE c.tenant_id = tenant);
END
$$;

-- The completions of a beginning, of one kind, most common first. What is looked at is bounded: behind one or two
-- letters the most common, behind more the first in order.
CREATE FUNCTION completed(wanted text, beginning text, visible text[])
RETURNS TABLE (folded text, shown text, documents bigint) LANGUAGE plpgsql STABLE ROWS 100 AS $$
DECLARE
    tenant uuid := app_tenant();
BEGIN
    RETURN QUERY
    SELECT c.folded, min(c.shown COLLATE "C"), sum(c.documents)
    FROM (
        (SELECT c.* FROM completions c
         WHERE length(beginning) = 1 AND c.tenant_id = tenant AND c.kind = wanted AND c.first = beginning
             AND (visible IS NULL OR c.namespace = ANY (visible))
         ORDER BY c.magnitude DESC, c.folded LIMIT 200)
        UNION ALL
        (SELECT c.* FROM completions c
         WHERE length(beginning) = 2 AND c.tenant_id = tenant AND c.kind = wanted AND c.two = beginning
             AND (visible IS NULL OR c.namespace = ANY (visible))
         ORDER BY c.magnitude DESC, c.folded LIMIT 200)
        UNION ALL
        (SELECT c.* FROM completions c
         WHERE length(beginning) > 2 AND c.tenant_id = tenant AND c.kind = wanted
             AND c.folded >= beginning AND c.folded < beginning || chr(1114111)
             AND (visible IS NULL OR c.namespace = ANY (visible))
         ORDER BY c.folded LIMIT 2000)
    ) AS c
    GROUP BY 1 ORDER BY 3 DESC, 1;
END
$$;

-- What begins as somebody typed, in one round trip: it says for whom it works itself. Titles and names begin with all
-- that was typed, words with its last one, and are none that the language of their namespace leaves out.
CREATE FUNCTION completions_by_prefix(tenant uuid, project text, reach text[], typed text, visible text[],
                                      most integer)
RETURNS TABLE (kind text, shown text, documents bigint) LANGUAGE plpgsql ROWS 30 AS $$
DECLARE
    line text COLLATE "C" := lower(on_one_line(typed));
    last text COLLATE "C" := substring(line FROM '[^ ]*$');
    languages regconfig[];
BEGIN
    PERFORM set_config('app.tenant', tenant::text, true), set_config('app.project', project, true),
        set_config('app.namespaces', reach::text, true);
    languages := ARRAY(SELECT DISTINCT n.language FROM namespaces n
                       WHERE n.tenant_id = tenant AND (visible IS NULL OR n.name = ANY (visible)));
    RETURN QUERY
    (SELECT 'entity', c.shown, c.documents FROM completed('entity', line, visible) c LIMIT most)
    UNION ALL
    (SELECT 'title', c.shown, c.documents FROM completed('title', line, visible) c LIMIT most)
    UNION ALL
    (SELECT 'term', c.shown, c.documents FROM completed('term', last, visible) c
     WHERE EXISTS (SELECT FROM unnest(languages) AS language WHERE to_tsvector(language, c.folded) <> ''::tsvector)
     LIMIT most);
END
$$;
REVOKE ALL ON FUNCTION fold_completions, completed, completions_by_prefix FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fold_completions, completed, completions_by_prefix TO braid_service;
