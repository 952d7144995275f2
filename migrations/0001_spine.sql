-- Tenants and their keys, documents and their links, and the dirty table that the derived engines follow.

CREATE TABLE tenants (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name       text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_keys (
    prefix     text PRIMARY KEY,
    tenant_id  uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    digest     bytea NOT NULL,
    scopes     text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz
);

-- Versions come from one sequence, so they keep growing when a document is deleted and written again.
CREATE SEQUENCE document_version;

CREATE TABLE documents (
    tenant_id  uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    id         text COLLATE "C" NOT NULL,
    namespace  text COLLATE "C" NOT NULL,
    title      text NOT NULL,
    content    text NOT NULL,
    metadata   jsonb NOT NULL,
    type       text,
    tags       text[] NOT NULL,
    entities   text[] NOT NULL,
    confidence float8,
    priority   smallint,
    created_at timestamptz NOT NULL,
    vector     real[],
    version    bigint NOT NULL,
    digest     bytea NOT NULL,
    facets     text[] NOT NULL,
    numbers    jsonb NOT NULL,
    tsv        tsvector NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX documents_by_namespace ON documents (tenant_id, namespace, id);
CREATE INDEX documents_by_word ON documents USING gin (tsv);
CREATE INDEX documents_by_facet ON documents USING gin (facets);

-- `declared` links stand in the document itself and are replaced with it; the others came through /v1/edges.
CREATE TABLE edges (
    tenant_id uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    source    text COLLATE "C" NOT NULL,
    target    text COLLATE "C" NOT NULL,
    type      text COLLATE "C" NOT NULL,
    strength  float8 NOT NULL CHECK (strength BETWEEN 0 AND 1),
    declared  boolean NOT NULL,
    PRIMARY KEY (tenant_id, source, target, type)
);
CREATE INDEX edges_by_target ON edges (tenant_id, target);

-- One row a (document, sink). A row whose document is gone is a tombstone: it stays until every sink applied it.
CREATE TABLE dirty (
    tenant_id       uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    document_id     text COLLATE "C" NOT NULL,
    sink            text NOT NULL,
    wanted_version  bigint NOT NULL,
    applied_version bigint NOT NULL DEFAULT 0,
    attempts        integer NOT NULL DEFAULT 0,
    next_try        timestamptz NOT NULL DEFAULT now(),
    error           text,
    claimed_by      uuid,
    claimed_until   timestamptz,
    PRIMARY KEY (tenant_id, document_id, sink)
) WITH (fillfactor = 70);
CREATE INDEX dirty_pending ON dirty (sink, wanted_version) WHERE applied_version < wanted_version;

-- The words of a text joined with OR. Lexemes are quoted here, so no text can break the query's syntax.
CREATE FUNCTION any_word(words text) RETURNS tsquery LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT coalesce(
        string_agg('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''', ' | ')::tsquery,
        ''::tsquery)
    FROM unnest(to_tsvector('english', words))
$$;

-- What people type, as a query: phrases must all be there, unwanted words must not; words alone are joined with OR.
CREATE FUNCTION typed_query(words text, phrases text[], unwanted text) RETURNS tsquery
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
    wanted tsquery := ''::tsquery;
    phrase text;
BEGIN
    FOREACH phrase IN ARRAY phrases LOOP
        wanted := wanted && phraseto_tsquery('english', phrase);
    END LOOP;
    IF numnode(wanted) = 0 THEN
        wanted := any_word(words);
    END IF;
    IF numnode(wanted) > 0 AND numnode(any_word(unwanted)) > 0 THEN
        wanted := wanted && !!any_word(unwanted);
    END IF;
    RETURN wanted;
END
$$;
