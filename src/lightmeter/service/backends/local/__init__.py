"""Local back ends for faces, unsafe content, texts, logos, colors and composed descriptions."""
