"""Room 4: actor, context and object features become one relational feature per actor."""
