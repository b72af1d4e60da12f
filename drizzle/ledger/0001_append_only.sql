CREATE TRIGGER `entries_keep_update` BEFORE UPDATE ON `entries` BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
--> statement-breakpoint
CREATE TRIGGER `entries_keep_delete` BEFORE DELETE ON `entries` BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
--> statement-breakpoint
CREATE TRIGGER `prices_keep_update` BEFORE UPDATE ON `prices` BEGIN SELECT RAISE(ABORT, 'a price version never changes'); END;
