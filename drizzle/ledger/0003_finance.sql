CREATE TABLE `posted_orders` (
	`n` integer PRIMARY KEY NOT NULL,
	`order_id` text NOT NULL,
	`entry_id` integer NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `posted_orders_order_id_unique` ON `posted_orders` (`order_id`);--> statement-breakpoint
ALTER TABLE `calls` ADD `audio_input_tokens` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `calls` ADD `audio_output_tokens` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `prices` ADD `audio_input_picodollars` integer;--> statement-breakpoint
ALTER TABLE `prices` ADD `audio_output_picodollars` integer;