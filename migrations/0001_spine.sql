-- Tenants and what belongs to them, and the dirty table that the derived engines follow.
--
-- Three roles. Whoever runs this owns the tables. `braid_service` is what the service may do; its login role is a
-- member. `braid_search` owns the few functions that read past row security, each of which checks the tenant itself.

DO $$
BEGIN
    CREATE ROLE braid_service NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
DO $$
BEGIN
    CREATE ROLE braid_search NOLOGIN BYPASSRLS;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;

-- Set in every transaction: for whom it works, and how far that caller reaches; or that it works for the service itself
-- (`admin`, `worker`).
CREATE FUNCTION app_tenant() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT nullif(current_setting('app.tenant', true), '')::uuid
$$;
CREATE FUNCTION app_project() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT nullif(current_setting('app.project', true), '')
$$;
CREATE FUNCTION app_namespaces() RETURNS text[] LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT nullif(current_setting('app.namespaces', true), '')::text[]
$$;
CREATE FUNCTION app_role() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT current_setting('app.role', true)
$$;

CREATE TABLE tenants (
    id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name           text NOT NULL UNIQUE,
    state          text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'suspended', 'deleting')),
    max_documents  bigint CHECK (max_documents >= 0),
    max_bytes      bigint CHECK (max_bytes >= 0),
    created_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX tenants_deleting ON tenants (id) WHERE state = 'deleting';

CREATE TABLE projects (
    tenant_id  uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    name       text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, name)
);

CREATE TABLE namespaces (
    tenant_id  uuid NOT NULL,
    name       text COLLATE "C" NOT NULL,
    project    text COLLATE "C" NOT NULL DEFAULT 'default',
    language   regconfig NOT NULL DEFAULT 'english',
    weights    jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, name),
    FOREIGN KEY (tenant_id, project) REFERENCES projects ON DELETE CASCADE
);
CREATE INDEX namespaces_by_project ON namespaces (tenant_id, project);

-- An admin key belongs to no tenant.
CREATE TABLE api_keys (
    prefix       text PRIMARY KEY,
    tenant_id    uuid REFERENCES tenants ON DELETE CASCADE,
    name         text NOT NULL,
    digest       bytea NOT NULL,
    scopes       text[] NOT NULL,
    project      text COLLATE "C",
    namespaces   text[],
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz
);
CREATE INDEX api_keys_by_tenant ON api_keys (tenant_id, name);

-- What admins and keys did. Nobody may change or remove a row, the service least of all.
CREATE TABLE audit (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT now(),
    actor     text NOT NULL,
    action    text NOT NULL,
    tenant_id uuid,
    detail    jsonb NOT NULL
);
CREATE INDEX audit_by_tenant ON audit (tenant_id, id);

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
    bytes      integer NOT NULL,
    digest     bytea NOT NULL,
    traits     jsonb NOT NULL,  -- what filters look at: see service/stores/filters.py
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, namespace) REFERENCES namespaces
);
CREATE INDEX documents_by_namespace ON documents (tenant_id, namespace, id);

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

-- How much each tenant holds. In slots, so that a tenant's writers don't queue for one row.
CREATE TABLE usage (
    tenant_id uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    slot      smallint NOT NULL,
    documents bigint NOT NULL,
    bytes     bigint NOT NULL,
    PRIMARY KEY (tenant_id, slot)
);

-- Refuses what takes a tenant over its quota. Writers of a tenant that has one wait here for each other until they
-- commit, so the use they compare is exact. Who shrinks, or grows in the other measure only, may always go on.
CREATE FUNCTION hold_quota(tenant uuid, more_documents bigint, more_bytes bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    allowed tenants;
    held record;
BEGIN
    SELECT * INTO allowed FROM tenants
    WHERE id = tenant AND (max_documents IS NOT NULL OR max_bytes IS NOT NULL) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT sum(u.documents) AS documents, sum(u.bytes) AS bytes INTO held FROM usage u WHERE u.tenant_id = tenant;
    IF more_documents > 0 AND held.documents > allowed.max_documents THEN
        RAISE EXCEPTION 'max_documents: this tenant may hold % documents, and would hold %',
            allowed.max_documents, held.documents USING ERRCODE = 'BRQ01';
    ELSIF more_bytes > 0 AND held.bytes > allowed.max_bytes THEN
        RAISE EXCEPTION 'max_bytes: this tenant may hold % bytes, and would hold %',
            allowed.max_bytes, held.bytes USING ERRCODE = 'BRQ01';
    END IF;
END
$$;

CREATE FUNCTION count_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO usage AS u SELECT tenant_id, pg_backend_pid() % 8, count(*), sum(bytes) FROM gained GROUP BY 1
        ON CONFLICT (tenant_id, slot) DO UPDATE
        SET documents = u.documents + excluded.documents, bytes = u.bytes + excluded.bytes;
        PERFORM hold_quota(tenant_id, count(*), sum(bytes)) FROM gained GROUP BY tenant_id;
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO usage AS u
        SELECT tenant_id, pg_backend_pid() % 8, 0, sum(bytes)
        FROM (SELECT tenant_id, bytes FROM gained UNION ALL SELECT tenant_id, -bytes FROM lost) AS both_sides GROUP BY 1
        ON CONFLICT (tenant_id, slot) DO UPDATE SET bytes = u.bytes + excluded.bytes;
        PERFORM hold_quota(tenant_id, 0, sum(bytes))
        FROM (SELECT tenant_id, bytes FROM gained UNION ALL SELECT tenant_id, -bytes FROM lost) AS both_sides
        GROUP BY tenant_id;
    ELSE
        INSERT INTO usage AS u SELECT tenant_id, pg_backend_pid() % 8, -count(*), -sum(bytes) FROM lost
        -- A tenant that is being deleted takes its documents along, and has no usage any more.
        WHERE EXISTS (SELECT FROM tenants t WHERE t.id = lost.tenant_id) GROUP BY 1
        ON CONFLICT (tenant_id, slot) DO UPDATE
        SET documents = u.documents + excluded.documents, bytes = u.bytes + excluded.bytes;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER documents_gained AFTER INSERT ON documents
    REFERENCING NEW TABLE AS gained FOR EACH STATEMENT EXECUTE FUNCTION count_usage();
CREATE TRIGGER documents_changed AFTER UPDATE ON documents
    REFERENCING OLD TABLE AS lost NEW TABLE AS gained FOR EACH STATEMENT EXECUTE FUNCTION count_usage();
CREATE TRIGGER documents_lost AFTER DELETE ON documents
    REFERENCING OLD TABLE AS lost FOR EACH STATEMENT EXECUTE FUNCTION count_usage();

-- Row security: a tenant's rows are seen by that tenant's transactions only; FORCE binds the owner too. The service
-- itself sees across tenants only where it must: an admin tenants and keys, a worker what is dirty.
DO $$
DECLARE
    wall record;
BEGIN
    FOR wall IN SELECT * FROM (VALUES
        ('documents', 'tenant_id', NULL), ('edges', 'tenant_id', NULL), ('projects', 'tenant_id', NULL),
        ('namespaces', 'tenant_id', NULL), ('usage', 'tenant_id', NULL), ('dirty', 'tenant_id', 'worker'),
        ('tenants', 'id', 'admin'), ('api_keys', 'tenant_id', 'admin'), ('audit', 'tenant_id', 'admin')
    ) AS walls (name, tenant, role) LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', wall.name);
        EXECUTE format('CREATE POLICY tenant ON %I USING (%I = app_tenant())', wall.name, wall.tenant);
        IF wall.role IS NOT NULL THEN
            EXECUTE format('CREATE POLICY service ON %I USING (app_role() = %L)', wall.name, wall.role);
        END IF;
    END LOOP;
END $$;

-- A worker leaves alone what is being deleted.
CREATE POLICY deleting ON tenants FOR SELECT USING (app_role() = 'worker' AND state = 'deleting');

-- Within its tenant a key may reach one project, or some namespaces, only. Subselects, so as to ask once a statement.
CREATE POLICY reach ON namespaces AS RESTRICTIVE USING (
    ((SELECT app_project()) IS NULL OR project = (SELECT app_project()))
    AND ((SELECT app_namespaces()) IS NULL OR name = ANY ((SELECT app_namespaces())::text[])));
CREATE POLICY reach ON documents AS RESTRICTIVE USING (
    (SELECT app_project() IS NULL AND app_namespaces() IS NULL)
    OR EXISTS (SELECT FROM namespaces n WHERE n.tenant_id = documents.tenant_id AND n.name = documents.namespace));
CREATE POLICY reach ON edges AS RESTRICTIVE USING (
    (SELECT app_project() IS NULL AND app_namespaces() IS NULL)
    OR EXISTS (SELECT FROM documents d WHERE d.tenant_id = edges.tenant_id AND d.id = edges.source));

GRANT USAGE ON SCHEMA public TO braid_service, braid_search;
GRANT SELECT, INSERT, UPDATE, DELETE ON tenants, projects, namespaces, documents, edges, dirty, usage TO braid_service;
GRANT SELECT, INSERT, UPDATE ON api_keys TO braid_service;
GRANT SELECT, INSERT ON audit TO braid_service;
GRANT USAGE, SELECT ON SEQUENCE document_version TO braid_service;
GRANT SELECT ON schema_migrations TO braid_service;
GRANT SELECT ON documents, api_keys, tenants TO braid_search;

-- Whose key this is must be known before there is a tenant.
CREATE FUNCTION find_key(wanted text)
RETURNS TABLE (tenant_id uuid, tenant_state text, digest bytea, scopes text[], project text, namespaces text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT k.tenant_id, t.state, k.digest, k.scopes, k.project, k.namespaces
    FROM public.api_keys k LEFT JOIN public.tenants t ON t.id = k.tenant_id
    WHERE k.prefix = wanted AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
$$;
ALTER FUNCTION find_key OWNER TO braid_search;
REVOKE ALL ON FUNCTION find_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_key TO braid_service;

-- Hydrates in one round trip: it says for whom it works itself.
CREATE FUNCTION documents_by_id(tenant uuid, project text, reach text[], ids text[], visible text[])
RETURNS TABLE (id text, namespace text, title text, content text, metadata jsonb, type text, tags text[],
               entities text[], confidence float8, priority smallint, created_at timestamptz, version bigint)
LANGUAGE plpgsql ROWS 20 AS $$
BEGIN
    PERFORM set_config('app.tenant', tenant::text, true), set_config('app.project', project, true),
        set_config('app.namespaces', reach::text, true);
    RETURN QUERY
    SELECT d.id, d.namespace, d.title, d.content, d.metadata, d.type, d.tags, d.entities, d.confidence, d.priority,
        d.created_at, d.version
    FROM documents d
    WHERE d.tenant_id = tenant AND d.id = ANY (ids) AND (visible IS NULL OR d.namespace = ANY (visible));
END
$$;
REVOKE ALL ON FUNCTION documents_by_id FROM PUBLIC;
GRANT EXECUTE ON FUNCTION documents_by_id TO braid_service;
