-- Times are UTC in RFC 3339 with nine decimals, so they sort as text.
CREATE TABLE runs (
	id       TEXT PRIMARY KEY,
	kind     TEXT NOT NULL,
	name     TEXT NOT NULL,
	source   TEXT NOT NULL,
	tool     TEXT NOT NULL,
	host     TEXT NOT NULL,
	config   BLOB,
	settings TEXT,
	created  TEXT NOT NULL,
	updated  TEXT NOT NULL
) STRICT;

CREATE TABLE cells (
	run_id       TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
	hash         TEXT NOT NULL,
	position     INTEGER NOT NULL CHECK (position >= 0),
	spec         TEXT,
	state        TEXT NOT NULL CHECK (state IN ('pending', 'running', 'done', 'failed', 'oom', 'refused', 'timeout', 'skipped', 'cancelled')),
	attempts     INTEGER NOT NULL CHECK (attempts >= 0),
	error        TEXT NOT NULL,
	hint         TEXT NOT NULL,
	result       TEXT,
	profile_file TEXT NOT NULL,
	started      TEXT,
	ended        TEXT,
	seconds      REAL NOT NULL,
	UNIQUE (run_id, hash)
) STRICT;

CREATE INDEX cells_in_order ON cells (run_id, position);
CREATE INDEX cells_by_hash ON cells (hash);

-- A lock is held until it expires; its token tells the holder's from a later one.
CREATE TABLE locks (
	run_id  TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
	owner   TEXT NOT NULL,
	token   TEXT NOT NULL,
	expires TEXT NOT NULL
) STRICT;
