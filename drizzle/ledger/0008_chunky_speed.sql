ALTER TABLE `positions` ADD `again_segment` integer;--> statement-breakpoint
ALTER TABLE `positions` ADD `again_offset` integer;