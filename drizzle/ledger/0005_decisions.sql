CREATE TABLE `decisions` (
	`call_id` text PRIMARY KEY NOT NULL,
	`at_ms` integer NOT NULL,
	`text` text NOT NULL
);
