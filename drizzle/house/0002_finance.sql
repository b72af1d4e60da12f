CREATE TABLE `budget_increases` (
	`n` integer PRIMARY KEY NOT NULL,
	`at_ms` integer NOT NULL,
	`actor` text NOT NULL,
	`tenant` text NOT NULL,
	`per` text NOT NULL,
	`timezone` text NOT NULL,
	`usd` text NOT NULL,
	`until_ms` integer NOT NULL,
	`reason` text NOT NULL
);
--> statement-breakpoint
CREATE TABLE `orders` (
	`n` integer PRIMARY KEY NOT NULL,
	`id` text NOT NULL,
	`at_ms` integer NOT NULL,
	`actor` text NOT NULL,
	`kind` text NOT NULL,
	`tenant` text NOT NULL,
	`amount_nanodollars` integer NOT NULL,
	`call_id` text,
	`reason` text NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `orders_id_unique` ON `orders` (`id`);--> statement-breakpoint
CREATE INDEX `orders_tenant` ON `orders` (`tenant`,`n`);--> statement-breakpoint
CREATE INDEX `orders_call` ON `orders` (`call_id`);--> statement-breakpoint
CREATE TRIGGER `orders_keep_update` BEFORE UPDATE ON `orders` BEGIN SELECT RAISE(ABORT, 'orders are append-only'); END;
--> statement-breakpoint
CREATE TRIGGER `orders_keep_delete` BEFORE DELETE ON `orders` BEGIN SELECT RAISE(ABORT, 'orders are append-only'); END;
--> statement-breakpoint
CREATE TRIGGER `budget_increases_keep_update` BEFORE UPDATE ON `budget_increases` BEGIN SELECT RAISE(ABORT, 'budget increases are append-only'); END;
--> statement-breakpoint
CREATE TRIGGER `budget_increases_keep_delete` BEFORE DELETE ON `budget_increases` BEGIN SELECT RAISE(ABORT, 'budget increases are append-only'); END;
