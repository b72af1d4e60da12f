CREATE TABLE `open_refusals` (
	`at_ms` integer NOT NULL,
	`key_id` text NOT NULL,
	`tenant` text NOT NULL,
	`failure` text NOT NULL,
	`count` integer NOT NULL,
	PRIMARY KEY(`at_ms`, `key_id`, `tenant`, `failure`)
);
