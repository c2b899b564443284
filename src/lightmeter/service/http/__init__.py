"""What callers meet: routes, parameters, answers, the OpenAPI document and the page."""
