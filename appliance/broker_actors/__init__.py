"""Shells around the parts that decide: the processes of the appliance, what starts them and what watches them."""
