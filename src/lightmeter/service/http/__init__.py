"""HTTP interface: routes, request parameters, endpoint logic, index page, OpenAPI document, fault injection."""
