//! Cron schedules.
