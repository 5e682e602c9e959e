"""Version v1alpha1 of the custom resources, as pydantic models.

Attributes are snake_case, fields of the object camelCase by the alias generator. Every field
says its unit and default; every rule over several fields is a ``Rule``, which carries the CEL
expression for the API server and the same condition in Python for everybody else.
"""
