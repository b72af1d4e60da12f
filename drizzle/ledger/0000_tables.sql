CREATE TABLE `attempts` (
	`call_id` text NOT NULL,
	`n` integer NOT NULL,
	`engine` text NOT NULL,
	`engine_model` text NOT NULL,
	`because` text NOT NULL,
	`at_ms` integer NOT NULL,
	PRIMARY KEY(`call_id`, `n`)
);
--> statement-breakpoint
CREATE TABLE `calls` (
	`id` text PRIMARY KEY NOT NULL,
	`at_ms` integer NOT NULL,
	`tenant` text NOT NULL,
	`key_id` text NOT NULL,
	`end_user` text NOT NULL,
	`model` text NOT NULL,
	`engine` text NOT NULL,
	`engine_model` text NOT NULL,
	`endpoint` text NOT NULL,
	`stream` integer NOT NULL,
	`status` integer NOT NULL,
	`finish_reason` text NOT NULL,
	`ending` text NOT NULL,
	`failure` text NOT NULL,
	`prompt_tokens` integer NOT NULL,
	`cached_tokens` integer NOT NULL,
	`completion_tokens` integer NOT NULL,
	`reasoning_tokens` integer NOT NULL,
	`usage_source` text NOT NULL,
	`attempts` integer NOT NULL,
	`hold_nanodollars` integer NOT NULL,
	`charge_nanodollars` integer,
	`price_version` integer NOT NULL,
	`queue_ms` integer NOT NULL,
	`engine_ms` integer NOT NULL,
	`first_token_ms` integer NOT NULL,
	`total_ms` integer NOT NULL,
	`request_sha256` blob NOT NULL,
	`response_sha256` blob NOT NULL,
	`log_index` integer
);
--> statement-breakpoint
CREATE INDEX `calls_at` ON `calls` (`at_ms`,`id`);--> statement-breakpoint
CREATE INDEX `calls_tenant_at` ON `calls` (`tenant`,`at_ms`,`id`);--> statement-breakpoint
CREATE TABLE `entries` (
	`id` integer PRIMARY KEY NOT NULL,
	`call_id` text,
	`at_ms` integer NOT NULL,
	`kind` text NOT NULL,
	`debit` text NOT NULL,
	`credit` text NOT NULL,
	`amount_nanodollars` integer NOT NULL,
	`reason` text NOT NULL,
	CONSTRAINT "entries_amount_positive" CHECK("entries"."amount_nanodollars" > 0),
	CONSTRAINT "entries_accounts_differ" CHECK("entries"."debit" <> "entries"."credit")
);
--> statement-breakpoint
CREATE INDEX `entries_call` ON `entries` (`call_id`);--> statement-breakpoint
CREATE TABLE `open_calls` (
	`call_id` text PRIMARY KEY NOT NULL,
	`series` text NOT NULL,
	`state` text NOT NULL
);
--> statement-breakpoint
CREATE TABLE `positions` (
	`series` text PRIMARY KEY NOT NULL,
	`segment` integer NOT NULL,
	`offset` integer NOT NULL,
	`finished` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `prices` (
	`model` text NOT NULL,
	`version` integer NOT NULL,
	`valid_from_ms` integer NOT NULL,
	`input_picodollars` integer NOT NULL,
	`cached_input_picodollars` integer,
	`output_picodollars` integer NOT NULL,
	`reasoning_picodollars` integer,
	`request_nanodollars` integer NOT NULL,
	`free` integer NOT NULL,
	PRIMARY KEY(`model`, `version`)
);
--> statement-breakpoint
CREATE TABLE `rollups` (
	`tenant` text NOT NULL,
	`model` text NOT NULL,
	`day` text NOT NULL,
	`calls` integer NOT NULL,
	`unpriced_calls` integer NOT NULL,
	`prompt_tokens` integer NOT NULL,
	`cached_tokens` integer NOT NULL,
	`completion_tokens` integer NOT NULL,
	`reasoning_tokens` integer NOT NULL,
	`charge_nanodollars` integer NOT NULL,
	PRIMARY KEY(`tenant`, `model`, `day`)
);
