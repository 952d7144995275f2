-- The keyword index: BM25 inside PostgreSQL, from a tsvector for the candidates and a sparse vector for the score.
--
-- A document's impact of a term is tf / (tf + k1 * (1 - b + b * length / average)); a query weighs each term by its
-- idf, so the score of a document is one inner product. Robertson and Zaragoza, "The Probabilistic Relevance Framework:
-- BM25 and Beyond" (2009); fields are weighed before saturation, as in BM25F.
--
-- Every lexeme begins with a tag of its tenant. So each tenant has posting lists of its own, and a search costs what
-- the tenant's own documents cost, however many others share the index.

DO $$
BEGIN
    CREATE EXTENSION IF NOT EXISTS vector;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'pgvector is not available: documents are ranked with ts_rank_cd';
END $$;

CREATE TABLE words (
    tenant_id uuid NOT NULL,
    id        text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    length    real NOT NULL,
    tsv       tsvector NOT NULL,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, id) REFERENCES documents ON DELETE CASCADE
) WITH (fillfactor = 80);
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') THEN
        ALTER TABLE words ADD COLUMN impacts sparsevec;
    ELSE
        ALTER TABLE words ADD COLUMN impacts text;  -- always null: nothing can be computed with it
    END IF;
END $$;
-- In line, not in a table of their own: candidates are read by the thousand.
ALTER TABLE words ALTER tsv SET STORAGE MAIN, ALTER impacts SET STORAGE MAIN;
-- Without a pending list, which every search would have to read.
CREATE INDEX words_by_lexeme ON words USING gin (tsv) WITH (fastupdate = off);

-- What is known of a tenant's documents as a whole, at the last look. A term that stands in one document only is left
-- out of `terms`, as that is what an unknown term is taken for.
-- Impacts hold an average length and the weights of fields: `weighed_by` and `shape`. Where these have moved too far,
-- all impacts are computed again, in order of id: `weighed_to` is how far that has come, null when it is done.
CREATE TABLE corpus (
    tenant_id    uuid PRIMARY KEY REFERENCES tenants ON DELETE CASCADE,
    documents    bigint NOT NULL,
    average      float8 NOT NULL,
    shape        text NOT NULL,
    weighed_by   float8 NOT NULL,
    weighed_to   text COLLATE "C",
    changes      bigint NOT NULL,
    refreshed_at timestamptz NOT NULL
);
CREATE TABLE terms (
    tenant_id uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    term      integer NOT NULL,
    documents integer NOT NULL,
    PRIMARY KEY (tenant_id, term)
);

ALTER TABLE usage ADD COLUMN changes bigint NOT NULL DEFAULT 0;
CREATE FUNCTION count_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage AS u (tenant_id, slot, documents, bytes, changes)
    SELECT tenant_id, pg_backend_pid() % 8, 0, 0, count(*) FROM touched
    WHERE EXISTS (SELECT FROM tenants t WHERE t.id = touched.tenant_id) GROUP BY 1
    ON CONFLICT (tenant_id, slot) DO UPDATE SET changes = u.changes + excluded.changes;
    RETURN NULL;
END
$$;
-- An insert may be an update in truth, and an update may only weigh again: writers count those themselves.
CREATE TRIGGER words_lost AFTER DELETE ON words
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION count_changes();

DO $$
DECLARE
    wall text;
BEGIN
    FOREACH wall IN ARRAY ARRAY['words', 'corpus', 'terms'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', wall);
        EXECUTE format('CREATE POLICY tenant ON %I USING (tenant_id = app_tenant())', wall);
    END LOOP;
END $$;
-- A worker has to see whose statistics are out of date; it sees counts, never words.
CREATE POLICY service ON usage FOR SELECT USING (app_role() = 'worker');
CREATE POLICY service ON corpus FOR SELECT USING (app_role() = 'worker');
GRANT SELECT, INSERT, UPDATE, DELETE ON words, corpus, terms TO braid_service;
GRANT SELECT ON words, corpus, terms, namespaces TO braid_search;

-- The dimension of a lexeme in a sparse vector, and its number in `terms`.
CREATE FUNCTION dimension(lexeme text) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT 1 + (hashtextextended(lexeme, 0) & 536870911)::integer
$$;
CREATE FUNCTION tag(tenant uuid) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT left(tenant::text, 8)
$$;

-- A tsvector whose every lexeme begins with the tag. No lexeme holds a blank, so in the text form each begins behind
-- one. What would be too long for a lexeme with its tag is left out: nobody types it.
CREATE FUNCTION tagged(plain tsvector, tag text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN substr(replace(' ' || plain::text, ' ''', ' ''' || tag), 2)::tsvector;
EXCEPTION WHEN program_limit_exceeded THEN
    plain := ts_delete(plain, ARRAY(SELECT lexeme FROM unnest(plain) WHERE octet_length(lexeme) > 2000));
    RETURN substr(replace(' ' || plain::text, ' ''', ' ''' || tag), 2)::tsvector;
END
$$;

-- Title and tags are told from the content by their weights. A slash separates words: to PostgreSQL alone, TCP/IP and
-- /slip flow/ would be the names of files.
CREATE FUNCTION words_of(language regconfig, title text, tags text[], content text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT setweight(to_tsvector(language, translate(title, '/', ' ')), 'A')
        || setweight(to_tsvector(language, translate(array_to_string(tags, ' '), '/', ' ')), 'B')
        || setweight(to_tsvector(language, translate(content, '/', ' ')), 'D')
$$;

-- How often a term stands in a document, each field weighed, and how long the document is by the same measure.
CREATE FUNCTION term_counts(tsv tsvector, title float8, tags float8)
RETURNS TABLE (term integer, tf float8) LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 100 AS $$
    SELECT dimension(substr(lexeme, 9)), sum(cardinality(positions)
        + (title - 1) * cardinality(array_positions(weights, 'A'))
        + (tags - 1) * cardinality(array_positions(weights, 'B')))
    FROM unnest(tsv) GROUP BY 1
$$;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') THEN
        CREATE FUNCTION impacts_of(tsv tsvector, length float8, average float8, title float8, tags float8, k1 float8,
                                   b float8)
        RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT NULL::text';
        RETURN;
    END IF;
    -- In thousandths: whole numbers are quicker to write, and no ranking needs more. A sparse vector holds 16,000 terms.
    CREATE FUNCTION impacts_of(tsv tsvector, length float8, average float8, title float8, tags float8, k1 float8,
                               b float8)
    RETURNS sparsevec LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
        SELECT ('{' || coalesce(string_agg(term || ':' || impact, ','), '') || '}/536870912')::sparsevec
        FROM (SELECT term, round(1000 * tf / (tf + k1 * (1 - b + b * length / average))) AS impact
              FROM term_counts(tsv, title, tags) ORDER BY 2 DESC LIMIT 16000) AS strongest
    $body$;
END $$;

-- A tsquery whose every lexeme begins with the tag and carries the mark (a field, a star). What holds a lexeme that is
-- too long with its tag says nothing: no document has such a word.
CREATE FUNCTION tagged(plain tsquery, tag text, mark text) RETURNS tsquery
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN regexp_replace(plain::text, '''((?:[^'']|'''')*)''',
        '''' || tag || '\1''' || CASE WHEN mark = '' THEN '' ELSE ':' || mark END, 'g')::tsquery;
EXCEPTION WHEN program_limit_exceeded THEN
    RETURN ''::tsquery;
END
$$;

-- A piece of a typed query as tsquery: its words in each language, tagged.
CREATE FUNCTION typed_leaf(leaf jsonb, languages regconfig[], tag text) RETURNS tsquery
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    mark text := coalesce(leaf ->> 'field', '') || CASE WHEN (leaf ->> 'prefix')::boolean THEN '*' ELSE '' END;
    typed text := translate(coalesce(leaf ->> 'word', leaf ->> 'phrase'), '/', ' ');
    found tsquery := ''::tsquery;
    language regconfig;
BEGIN
    FOREACH language IN ARRAY languages LOOP
        found := found || tagged(CASE WHEN leaf ? 'phrase' THEN phraseto_tsquery(language, typed)
                                      WHEN (leaf ->> 'prefix')::boolean THEN plainto_tsquery('simple', typed)
                                      ELSE plainto_tsquery(language, typed) END, tag, mark);
    END LOOP;
    RETURN found;
END
$$;

-- What a tree of what was typed wants, as tsquery. A piece without words, such as a stop word, says nothing and is left
-- out; so is what is only unwanted, as no index can look for that.
CREATE FUNCTION typed_query(tree jsonb, languages regconfig[], tag text) RETURNS tsquery
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    found tsquery := ''::tsquery;
    part jsonb;
    said tsquery;
BEGIN
    IF tree ? 'not' THEN
        RETURN found;
    ELSIF NOT tree ?| ARRAY['all', 'any'] THEN
        RETURN typed_leaf(tree, languages, tag);
    END IF;
    FOR part IN SELECT jsonb_array_elements(coalesce(tree -> 'all', tree -> 'any')) LOOP
        said := typed_query(part, languages, tag);
        IF numnode(said) > 0 THEN
            found := CASE WHEN numnode(found) = 0 THEN said WHEN tree ? 'all' THEN found && said ELSE found || said END;
        END IF;
    END LOOP;
    RETURN without(found, tree, languages, tag);
END
$$;

-- A query without what the tree does not want.
CREATE FUNCTION without(wanted tsquery, tree jsonb, languages regconfig[], tag text) RETURNS tsquery
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    part jsonb;
    said tsquery;
BEGIN
    FOR part IN SELECT jsonb_array_elements(tree -> 'all') LOOP
        said := typed_query(part -> 'not', languages, tag);
        IF numnode(wanted) > 0 AND numnode(said) > 0 THEN
            wanted := wanted && !!said;
        END IF;
    END LOOP;
    RETURN wanted;
END
$$;

-- The terms of a query with their idf, rarest first. `before` is in how many documents the rarer ones stand together.
-- A single letter says next to nothing beside three real words.
CREATE FUNCTION query_terms(tenant uuid, typed text, languages regconfig[])
RETURNS TABLE (lexeme text, term integer, idf float8, before bigint) LANGUAGE sql STABLE ROWS 10 AS $$
    WITH typed_words AS (
        SELECT w.lexeme, max(cardinality(w.positions)) AS times
        FROM unnest(languages) AS language, unnest(to_tsvector(language, translate(typed, '/', ' '))) AS w GROUP BY 1
    ), known AS (
        SELECT w.lexeme, w.times, dimension(w.lexeme) AS term, coalesce(t.documents, 1) AS documents
        FROM typed_words w LEFT JOIN public.terms t ON t.tenant_id = tenant AND t.term = dimension(w.lexeme)
        WHERE octet_length(w.lexeme) <= 2000
            AND (length(w.lexeme) > 1 OR (SELECT count(*) FROM typed_words o WHERE length(o.lexeme) > 1) < 3)
    ), size AS (SELECT coalesce((SELECT c.documents FROM public.corpus c WHERE c.tenant_id = tenant), 0) AS documents)
    SELECT k.lexeme, k.term,
        k.times * ln(1 + (greatest(s.documents, k.documents) - k.documents + 0.5) / (k.documents + 0.5)),
        (sum(k.documents) OVER (ORDER BY k.documents, k.term) - k.documents)::bigint
    FROM known k, size s
$$;

-- Row security keeps the index on tsv from being used, as @@ is not leakproof. So the match reads past it, for the
-- transaction's own tenant and no other. Bare words look for the rarest until those stand in `bound` documents; at
-- most four times as many are scored, however common a word is.
CREATE FUNCTION keyword_match(tree jsonb, plain boolean, typed text, visible text[], condition jsonpath, operands jsonb,
                              depth integer, bound integer, ranker text)
RETURNS TABLE (id text, score float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp ROWS 150 AS $$
DECLARE
    tenant uuid := app_tenant();
    languages regconfig[] := ARRAY(SELECT DISTINCT n.language FROM namespaces n
                                   WHERE n.tenant_id = tenant AND (visible IS NULL OR n.name = ANY (visible)));
    wanted tsquery;
    every text;
    rare text;
    weights text;
BEGIN
    SELECT string_agg(quoted, ' | '), string_agg(quoted, ' | ') FILTER (WHERE before < bound),
        '{' || string_agg(term || ':' || idf, ',') || '}/536870912'
    INTO every, rare, weights
    FROM (SELECT '''' || replace(replace(tag(tenant) || q.lexeme, '\', '\\'), '''', '''''') || '''' AS quoted, q.term,
              q.idf, q.before
          FROM query_terms(tenant, typed, languages) q) AS terms_of_query;
    wanted := CASE WHEN plain THEN ''::tsquery ELSE typed_query(tree, languages, tag(tenant)) END;
    IF numnode(wanted) = 0 THEN
        wanted := without(rare::tsquery, tree, languages, tag(tenant));
    END IF;
    IF wanted IS NULL OR numnode(wanted) = 0 THEN
        RETURN;
    END IF;
    IF ranker = 'bm25' THEN
        RETURN QUERY
        SELECT c.id, coalesce(-(c.impacts <#> weights::sparsevec), 0)::float8 / 1000 AS score
        FROM (SELECT w.id, w.impacts FROM words w
              WHERE w.tenant_id = tenant AND (visible IS NULL OR w.namespace = ANY (visible)) AND w.tsv @@ wanted
                  AND (condition IS NULL OR EXISTS (SELECT FROM documents d WHERE d.tenant_id = tenant AND d.id = w.id
                                                    AND jsonb_path_match(d.traits, condition, operands)))
              LIMIT 4 * bound) AS c
        ORDER BY score DESC, c.id LIMIT depth;
    ELSE
        RETURN QUERY
        SELECT c.id, ts_rank_cd(c.tsv, coalesce(every::tsquery, wanted))::float8 AS score
        FROM (SELECT w.id, w.tsv FROM words w
              WHERE w.tenant_id = tenant AND (visible IS NULL OR w.namespace = ANY (visible)) AND w.tsv @@ wanted
                  AND (condition IS NULL OR EXISTS (SELECT FROM documents d WHERE d.tenant_id = tenant AND d.id = w.id
                                                    AND jsonb_path_match(d.traits, condition, operands)))
              LIMIT 4 * bound) AS c
        ORDER BY score DESC, c.id LIMIT depth;
    END IF;
END
$$;
ALTER FUNCTION keyword_match OWNER TO braid_search;
REVOKE ALL ON FUNCTION keyword_match FROM PUBLIC;
GRANT EXECUTE ON FUNCTION keyword_match TO braid_service;

-- The keyword tier's question in one round trip: it says for whom it works itself.
CREATE FUNCTION documents_by_word(tenant uuid, tree jsonb, plain boolean, typed text, visible text[],
                                  condition jsonpath, operands jsonb, depth integer, bound integer, ranker text)
RETURNS TABLE (id text, score float8) LANGUAGE plpgsql ROWS 150 AS $$
BEGIN
    PERFORM set_config('app.tenant', tenant::text, true);
    RETURN QUERY SELECT * FROM keyword_match(tree, plain, typed, visible, condition, operands, depth, bound, ranker);
END
$$;
REVOKE ALL ON FUNCTION documents_by_word FROM PUBLIC;
GRANT EXECUTE ON FUNCTION documents_by_word TO braid_service;

-- Counts a tenant's documents and terms afresh. Searches go on with the old figures until this commits.
CREATE FUNCTION refresh_corpus(wanted_shape text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    tenant uuid := app_tenant();
    seen bigint := (SELECT coalesce(sum(u.changes), 0) FROM usage u WHERE u.tenant_id = tenant);
    size bigint;
    mean float8;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('corpus'), hashtext(tenant::text)) THEN
        RETURN;
    END IF;
    SELECT count(*), coalesce(avg(w.length), 1) INTO size, mean FROM words w WHERE w.tenant_id = tenant;
    DELETE FROM terms t WHERE t.tenant_id = tenant;
    INSERT INTO terms SELECT tenant, dimension(substr(word, 9)), sum(ndoc)
    FROM ts_stat(format('SELECT tsv FROM words WHERE tenant_id = %L', tenant)) GROUP BY 2 HAVING sum(ndoc) > 1;
    INSERT INTO corpus AS c VALUES (tenant, size, mean, wanted_shape, mean, '', seen, now())
    ON CONFLICT (tenant_id) DO UPDATE SET documents = size, average = mean, changes = seen, refreshed_at = now();
    UPDATE corpus c SET shape = wanted_shape, weighed_by = mean, weighed_to = ''
    WHERE c.tenant_id = tenant AND (abs(mean - c.weighed_by) > 0.05 * c.weighed_by OR c.shape <> wanted_shape);
END
$$;
REVOKE ALL ON FUNCTION refresh_corpus FROM PUBLIC;
GRANT EXECUTE ON FUNCTION refresh_corpus TO braid_service;
