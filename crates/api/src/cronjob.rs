//! The CronJob: stored and validated.
