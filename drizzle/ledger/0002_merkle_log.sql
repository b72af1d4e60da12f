CREATE TABLE `admin_actions` (
	`id` integer PRIMARY KEY NOT NULL,
	`at_ms` integer NOT NULL,
	`actor` text NOT NULL,
	`action` text NOT NULL,
	`subject` text NOT NULL,
	`detail_json` text NOT NULL,
	`log_index` integer
);
--> statement-breakpoint
CREATE TABLE `refusals` (
	`id` integer PRIMARY KEY NOT NULL,
	`at_ms` integer NOT NULL,
	`key_id` text NOT NULL,
	`tenant` text NOT NULL,
	`failure` text NOT NULL,
	`count` integer NOT NULL,
	`log_index` integer
);
--> statement-breakpoint
ALTER TABLE `calls` ADD `salt` blob;--> statement-breakpoint
ALTER TABLE `entries` ADD `log_index` integer;--> statement-breakpoint
ALTER TABLE `prices` ADD `log_index` integer;
--> statement-breakpoint
CREATE TRIGGER `refusals_keep_update` BEFORE UPDATE ON `refusals` BEGIN SELECT RAISE(ABORT, 'refusals are append-only'); END;
--> statement-breakpoint
CREATE TRIGGER `refusals_keep_delete` BEFORE DELETE ON `refusals` BEGIN SELECT RAISE(ABORT, 'refusals are append-only'); END;
--> statement-breakpoint
CREATE TRIGGER `admin_actions_keep_update` BEFORE UPDATE ON `admin_actions` BEGIN SELECT RAISE(ABORT, 'admin actions are append-only'); END;
--> statement-breakpoint
CREATE TRIGGER `admin_actions_keep_delete` BEFORE DELETE ON `admin_actions` BEGIN SELECT RAISE(ABORT, 'admin actions are append-only'); END;
