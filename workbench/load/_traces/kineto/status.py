"""What a parser found where it stopped."""

ARRAY_END, NEED_MORE, BLOCK_FULL, STRINGS_FULL, ODD, NO_EVENT = 0, 1, 2, 3, 4, 5
