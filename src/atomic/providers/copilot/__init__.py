"""GitHub Copilot as a provider, on a program that is ours."""
