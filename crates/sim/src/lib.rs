//! The whole engine on a simulated disk under a seeded scheduler
