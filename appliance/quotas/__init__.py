"""Who may use how much: rates, what is set for whom, and how long somebody over a limit waits."""
