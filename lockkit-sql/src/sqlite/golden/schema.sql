CREATE TABLE "lockkit_claims" (
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- the fence
  key BLOB NOT NULL,
  token BLOB NOT NULL,
  mode INTEGER NOT NULL, -- 0 exclusive, -1 shared, n > 0 permit of n, -2 waiting writer, -3 run
  label TEXT,
  boot BLOB NOT NULL, -- the run of the machine that the next two count in
  since INTEGER NOT NULL, -- nanoseconds since boot
  expires INTEGER NOT NULL
);
CREATE INDEX "lockkit_claims_key" ON "lockkit_claims" (key);
CREATE TRIGGER "lockkit_claims_reclaim" BEFORE INSERT ON "lockkit_claims" BEGIN
  DELETE FROM "lockkit_claims" WHERE key = NEW.key AND (boot <> NEW.boot OR expires <= NEW.since);
END;
