-- What each tenant searched for the last days, minute by minute, so that there is a history without Prometheus.
--
-- A row is what one process counted in one minute, as it stands: written again it is the same, so a flush whose end
-- nobody saw can be repeated. Sums over processes are what happened.

CREATE TABLE samples (
    tenant_id uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    minute    timestamptz NOT NULL,
    writer    uuid NOT NULL,
    counts    jsonb NOT NULL,  -- names of counters to numbers: see service/tally.py
    PRIMARY KEY (tenant_id, minute, writer)
);
CREATE INDEX samples_by_age ON samples (minute);

ALTER TABLE samples ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON samples USING (tenant_id = app_tenant());
-- Counts, never what was searched for: an admin compares tenants, a worker removes what is old.
CREATE POLICY admin ON samples FOR SELECT USING (app_role() = 'admin');
CREATE POLICY worker ON samples USING (app_role() = 'worker');
GRANT SELECT, INSERT, UPDATE, DELETE ON samples TO braid_service;
GRANT SELECT, INSERT, UPDATE ON samples TO braid_search;

-- A process writes for all its tenants at once. Which of them are still there, row security hides from it.
CREATE FUNCTION record_samples(process uuid, counted jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO public.samples (tenant_id, minute, writer, counts)
    SELECT n.tenant, to_timestamp(n.minute * 60), process, n.counts
    FROM jsonb_to_recordset(counted) AS n (tenant uuid, minute bigint, counts jsonb)
    JOIN public.tenants t ON t.id = n.tenant AND t.state <> 'deleting'
    WHERE public.app_role() = 'worker'
    ORDER BY n.tenant, n.minute
    ON CONFLICT (tenant_id, minute, writer) DO UPDATE SET counts = excluded.counts
$$;
ALTER FUNCTION record_samples OWNER TO braid_search;
REVOKE ALL ON FUNCTION record_samples FROM PUBLIC;
GRANT EXECUTE ON FUNCTION record_samples TO braid_service;

-- Since when a sink owes a document, for the lag in seconds.
ALTER TABLE dirty ADD COLUMN wanted_since timestamptz NOT NULL DEFAULT now();
