"""How to use MULE's parts in a project of your own."""
