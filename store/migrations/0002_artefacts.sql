-- The content is gzip; where it is absent, path names the file that holds it.
CREATE TABLE artefacts (
	kind    TEXT NOT NULL CHECK (kind IN ('profile', 'predictor')),
	hash    TEXT NOT NULL,
	name    TEXT NOT NULL,
	model   TEXT NOT NULL,
	device  TEXT NOT NULL,
	engine  TEXT NOT NULL,
	created TEXT NOT NULL,
	path    TEXT NOT NULL,
	content BLOB,
	CHECK ((path = '') = (content IS NOT NULL)),
	PRIMARY KEY (kind, hash)
) STRICT;

CREATE INDEX artefacts_by_name ON artefacts (kind, name);
