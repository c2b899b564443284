"""HTTP: routes, request parameters, handlers, the index page, the OpenAPI document, and the fault middleware."""
