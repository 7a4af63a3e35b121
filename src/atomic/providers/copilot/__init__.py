"""GitHub Copilot as a provider, through its SDK on a program that is ours."""
