ALTER TABLE `calls` ADD `images` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `prices` ADD `image_nanodollars` integer DEFAULT 0 NOT NULL;