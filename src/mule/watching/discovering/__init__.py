"""What novel people do: looks become acts, acts become groups, and groups get suggestions."""
