CREATE TABLE `admin_log` (
	`id` integer PRIMARY KEY NOT NULL,
	`at_ms` integer NOT NULL,
	`actor` text NOT NULL,
	`action` text NOT NULL,
	`subject` text NOT NULL,
	`detail_json` text NOT NULL
);
--> statement-breakpoint
CREATE TABLE `keys` (
	`id` text PRIMARY KEY NOT NULL,
	`sha256` text NOT NULL,
	`prefix` text NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`models_json` text,
	`limits_json` text NOT NULL,
	`expires_at_ms` integer,
	`revoked_at_ms` integer,
	`created_at_ms` integer NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `keys_sha256_unique` ON `keys` (`sha256`);--> statement-breakpoint
CREATE INDEX `keys_tenant` ON `keys` (`tenant`,`id`);--> statement-breakpoint
CREATE TABLE `tenants` (
	`name` text PRIMARY KEY NOT NULL,
	`body_json` text NOT NULL,
	`created_at_ms` integer NOT NULL
);
