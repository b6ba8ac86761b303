//! The models.
mod lock;
mod stage;
