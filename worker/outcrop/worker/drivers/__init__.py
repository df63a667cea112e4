"""The drivers: what makes timers fire and dead threads go on, on every replica."""
