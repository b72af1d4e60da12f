CREATE TRIGGER `admin_log_keep_update` BEFORE UPDATE ON `admin_log` BEGIN SELECT RAISE(ABORT, 'the admin log is append-only'); END;
--> statement-breakpoint
CREATE TRIGGER `admin_log_keep_delete` BEFORE DELETE ON `admin_log` BEGIN SELECT RAISE(ABORT, 'the admin log is append-only'); END;
