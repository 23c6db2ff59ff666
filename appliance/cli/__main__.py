"""`python -m appliance.cli`: the same as the command `appliance`."""

from appliance.cli.main import main

main()
