"""Why a drafter is rejected: checks of its folder, and a short run that changes one thing at a time."""
