// The details of one item: enlarged picture, results of each back end, facts.
